"use strict";
(() => {
  const data = JSON.parse(document.getElementById("details").textContent);
  const config = {
    background: null, font: "system-ui, sans-serif", view: {stroke: null},
    axis: {labelColor: "#333", titleColor: "#555", gridColor: "#e9eaef", domainColor: "#999"},
  };
  const options = {actions: false, renderer: "svg", logLevel: 1, config};
  const UP = "#3b7fc4", DOWN = "#e08214";
  document.body.classList.add("live");

  // Pictures come alive.
  for (const chart of document.querySelectorAll(".chart[data-spec]")) {
    const spec = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
    const picture = chart.innerHTML;
    vegaEmbed(chart, spec, options).catch((error) => { chart.innerHTML = picture; console.error(error); });
  }

  // The table: find, filter, sort.
  const table = document.getElementById("table"), body = table.tBodies[0];
  const rows = [...body.rows], count = document.getElementById("count");
  const find = document.getElementById("find"), group = document.getElementById("group");
  const state = document.getElementById("state");
  const texts = new Map(rows.map((row) => {
    const kept = data.rows[row.dataset.row];
    return [row, `${row.textContent} ${kept ? kept.prompt : ""}`.toLowerCase()];
  }));

  function filter() {
    const words = find.value.toLowerCase(), of = group ? group.value : "";
    let shown = 0;
    for (const row of rows) {
      const fits = (!words || texts.get(row).includes(words)) && (!of || row.dataset.group === of)
        && (!state.value || row.dataset.state === state.value);
      row.hidden = !fits;
      if (!fits) close(row);
      shown += fits;
    }
    count.textContent = shown === rows.length ? `${shown} prompts` : `${shown} of ${rows.length} prompts`;
  }
  find.addEventListener("input", filter);
  state.addEventListener("change", filter);
  if (group) group.addEventListener("change", filter);

  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const number = head.dataset.sort === "number";
      const key = (row) => {
        const cell = row.cells[column];
        if (!number) return cell.textContent;
        return cell.dataset.value === "" ? NaN : Number(cell.dataset.value);
      };
      const compare = (a, b) => {
        if (!number) return down * key(a).localeCompare(key(b));
        const x = key(a), y = key(b);
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return down * (x - y);
      };
      rows.forEach(close);
      for (const row of [...rows].sort(compare)) body.append(row);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down === 1 ? "ascending" : "descending");
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });

  // One prompt's ledger.
  const made = (tag, name, text) => {
    const element = document.createElement(tag);
    element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  function close(row) {
    const next = row.nextElementSibling;
    if (next && next.classList.contains("detail")) next.remove();
    const button = row.querySelector("button.open");
    if (button) button.setAttribute("aria-expanded", "false");
  }

  function account(panel, found) {
    const lines = [{label: "start", name: "where the path starts", low: 0, high: found.start, change: found.start,
      kind: "start"}];
    let level = found.start;
    const add = (label, name, change) => {
      lines.push({label, name, low: level, high: level + change, change, kind: change < 0 ? "down" : "up"});
      level += change;
    };
    if (found.constant) add("const.", "the constant", found.constant);
    panel.depths.forEach((depth, k) => add(String(depth), panel.names[k], found.values[k]));
    lines.push({label: "end", name: "the model's own value", low: 0, high: found.end, change: found.end, kind: "end"});
    lines.forEach((line, k) => { line.next = (lines[k + 1] || line).label; });
    return lines;
  }

  function values(panel, found) {
    return panel.depths.map((depth, k) => ({depth, name: panel.names[k], value: found.values[k],
      fill: found.values[k] < 0 ? DOWN : UP}));
  }

  function open(row) {
    const one = data.rows[row.dataset.row];
    const line = made("tr", "detail"), cell = made("td", "");
    cell.colSpan = heads.length;
    line.append(cell);
    row.after(line);
    const said = made("p", "");
    said.append(made("b", "text", one.target), ` has ${one.probability} after`);
    cell.append(said);
    const chips = made("div", "chips");
    one.tokens.forEach((token) => chips.append(made("span", "chip", token)));
    cell.append(chips);
    one.warnings.forEach((warning) => cell.append(made("p", "quiet text", `Note: ${warning}`)));
    const pair = made("div", "pair");
    cell.append(pair);
    for (const panel of data.lenses) {
      const found = one.lenses[panel.lens];
      if (!found) continue;
      const figure = made("figure", ""), chart = made("div", "chart");
      figure.append(made("b", "", panel.ledger ? `${panel.title}: the ledger` : panel.title), chart);
      figure.append(made("p", "quiet", `Receipt: ${found.receipt}.`));
      if (panel.ledger) figure.style.gridColumn = "1 / -1";
      pair.append(figure);
      const rows = panel.ledger ? account(panel, found) : values(panel, found);
      vegaEmbed(chart, {...panel.spec, data: {values: rows}}, options).catch(console.error);
    }
    if (one.onsets) cell.append(onsets(one.onsets));
    row.querySelector("button.open").setAttribute("aria-expanded", "true");
  }

  function onsets(found) {
    const whole = made("div", "onsets"), scroll = made("div", "scroll"), table = made("table", "");
    whole.append(made("b", "", "Where does it set in?"));
    found.warnings.forEach((warning) => whole.append(made("p", "quiet text", `Note: ${warning}`)));
    const line = (tag, texts) => {
      const row = made("tr", "");
      texts.forEach((text) => row.append(made(tag, "", text)));
      table.append(row);
    };
    line("th", ["onset by", "depth", "with fewer depths", "from other baselines", "which is"]);
    data.onsets.forEach(([title, meaning], k) => line("td", [title, ...found.lines[k], meaning]));
    scroll.append(table);
    whole.append(scroll);
    return whole;
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr.opens");
    if (!row || (String(getSelection()) && !event.target.closest("button"))) return;
    const next = row.nextElementSibling;
    if (next && next.classList.contains("detail")) close(row);
    else open(row);
  });

  // A link from what stands out opens the prompt.
  function arrive() {
    show(location.hash);
  }
  function show(hash) {
    const row = hash.startsWith("#row-") && document.getElementById(hash.slice(1));
    if (!row || !row.classList.contains("opens")) return;
    find.value = ""; state.value = ""; if (group) group.value = "";
    filter();
    close(row);
    open(row);
    row.scrollIntoView();
  }
  addEventListener("hashchange", arrive);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#row-']");
    if (link && link.hash === location.hash) show(link.hash);  // the same one again changes no hash
  });
  filter();
  arrive();
})();
