"use strict";
(() => {
  const config = {
    background: null, font: "system-ui, sans-serif", view: {stroke: null},
    axis: {labelColor: "#333", titleColor: "#555", gridColor: "#e9eaef", domainColor: "#999"},
  };
  document.body.classList.add("live");
  // Pictures come alive; on canvas, since some have thousands of marks.
  for (const chart of document.querySelectorAll(".chart[data-spec]")) {
    const spec = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
    const picture = chart.innerHTML;
    vegaEmbed(chart, spec, {actions: false, renderer: "canvas", logLevel: 1, config})
      .catch((error) => { chart.innerHTML = picture; console.error(error); });
  }
})();
