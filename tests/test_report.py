"""Reports: every file holds the same numbers and the same text, nothing in them runs, and all opens again."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations

import altair as alt
import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from lenses import aggregates, batch, charts, prompts, registry, report, store
from lenses.attribution import Verdict
from lenses.errors import BadRun
from lenses.findings import COLUMNS, Outcome, against, gathered
from lenses.onset import onset
from lenses.report import details, page, tables
from lenses.report.neutral import neutral, original
from tests import tiny
from tests.contract import COMPARISON, faults, parsed

IMAGE = '"><img src=x onerror=alert(1)>'
NASTY = [
    IMAGE, "</script><script>alert(1)</script>", "<!--<script>", "=1+1", "+1", "-1", "@x", "\t=1", "'=1",
    "''x", "'",
    "It costs $5 or $10 _now_ **x** [a](b) :smile: # h", "{{ 7 * 7 }}{% raw %}", "a\nb\r\nc",
    "naïve 🤗 \u202ex",
    "&lt;b&gt;", "\u2028", "a.b", "_x0041_", "NA", "007", "1e5",
]  # fmt: skip


class Run:
    """Outcomes that are there, as a run."""

    def __init__(self, outcomes: list[Outcome], names=None) -> None:
        self._outcomes = outcomes
        listed = prompts.read(b"prompt\nw3\n", IMAGE + ".csv")
        chosen = [registry.get(name) for name in names or registry.quick()]
        self.settings = store.settings(tiny.decoder("gpt2"), listed, chosen)

    def outcomes(self):
        return iter(self._outcomes)


def explained(names=None, count: int = 12) -> list[Outcome]:
    """Outcomes of short prompts, in groups, and one failure."""
    words = [" ".join(f"w{3 + (k * 11 + j * 5) % 60}" for j in range(1 + k % 4)) for k in range(count)]
    rows = [
        prompts.Row(k, k + 1, word, group=["up", "down", ""][k % 3], id=f"i{k}", extra=(("note", f"n{k}"),))
        for k, word in enumerate(words, start=1)
    ]
    rows.append(
        prompts.Row(count + 1, count + 2, "w3 <b>", problem="line 14 is <b>cut</b>", extra=(("note", ""),))
    )
    found = batch.run(tiny.decoder("gpt2"), rows, names)
    return sorted(found, key=lambda one: one.row.row)


def dressed(outcomes: list[Outcome], texts: list[str]) -> list[Outcome]:
    """The same outcomes as if users had written these texts wherever a user can write."""
    made = []
    for k, one in enumerate(outcomes):
        text = texts[k % len(texts)]
        row = replace(one.row, prompt=text, id=text, group=text, extra=((text or "x", text),))
        found = one.comparison
        if found is not None:
            model = {**found.model, "name": f"<b>{IMAGE}"}
            tokens = tuple(replace(token, text=text) for token in found.prompt.tokens)
            prompt = replace(found.prompt, text=text, tokens=tokens)
            found = replace(found, prompt=prompt, target_text=text, warnings=(text,), model=model)
        made.append(Outcome(row, found, one.failure))
    return made


@pytest.fixture(scope="module")
def plain():
    return Run(explained())


@pytest.fixture(scope="module")
def made(tmp_path_factory, plain):
    """The folder of a report and its findings."""
    folder = tmp_path_factory.mktemp("report")
    return folder, report.write(folder, plain)


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nasty")
    run = Run(dressed(explained(count=len(NASTY) - 1), NASTY))
    report.write(folder, run)
    return folder, run


# The files and their contract


def test_every_row_has_one_line_in_the_summary_with_its_own_columns_behind(made):
    with open(made[0] / "summary.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [*COLUMNS, "note"]
    assert [line["row"] for line in lines] == [str(k) for k in range(1, 14)]
    assert [line["line"] for line in lines] == [str(k) for k in range(2, 15)]
    assert lines[2]["note"] == "n3"
    assert lines[-1]["failure"] == "line 14 is <b>cut</b>"
    assert lines[-1]["probability"] == lines[-1]["verdict"] == ""
    assert lines[0]["verdict"] == "exact"


def test_a_summarys_numbers_are_those_of_the_comparison(made, plain):
    frame = pd.read_csv(made[0] / "summary.csv", keep_default_na=False, na_values={"probability": ""})
    for one, line in zip(plain.outcomes(), frame.to_dict("records"), strict=True):
        if one.comparison is None:
            continue
        ledger = one.comparison.ledgers[0]
        a = ledger.attribution
        assert line["probability"] == one.comparison.probability
        assert float(line["delta"]) == a.end - a.start
        assert float(line["gap"]) == ledger.additivity.gap
        assert int(line["onset"]) == onset(a.depths, a.values)
        assert line["target"] == one.comparison.target_text


def test_the_results_are_tidy_and_the_same_in_every_file(made, plain):
    parquet = pd.read_parquet(made[0] / "results.parquet")
    text = pd.read_csv(made[0] / "results.csv", keep_default_na=False)
    assert list(parquet) == ["row", "id", "group", "prompt", "target", "lens", "depth", "unit", "value"]
    pd.testing.assert_frame_equal(parquet, text, check_exact=True, check_dtype=False)
    sheet = pd.read_excel(
        made[0] / "report.xlsx", sheet_name="results", keep_default_na=False, dtype={"id": str}
    )
    # A spreadsheet keeps 15 digits, and the file 16.
    pd.testing.assert_frame_equal(parquet, sheet, rtol=1e-14, atol=0, check_dtype=False)
    for one in plain.outcomes():
        mine = parquet[parquet["row"] == one.row.row]
        if one.comparison is None:
            assert mine.empty
            continue
        for result in one.comparison.results:
            a = result.attribution
            lines = mine[mine["lens"] == a.lens]
            assert lines["depth"].tolist() == a.depths.tolist()
            assert lines["value"].tolist() == a.values.tolist()
            assert set(lines["unit"]) == {a.unit.value}


def test_the_json_is_the_contracts(made, plain):
    found = parsed((made[0] / "report.json").read_text(encoding="utf-8"))
    assert found["schema"] == "lenses.report/1"
    assert {"provenance", "summary", "comparisons", "failures"} <= set(found)
    whole = [one.comparison.to_dict() for one in plain.outcomes() if one.comparison]
    assert found["comparisons"] == json.loads(json.dumps(whole))
    assert not [fault for one in found["comparisons"] for fault in faults(one, COMPARISON)]
    assert found["failures"] == [
        {"row": 13, "line": 14, "prompt": "w3 <b>", "reason": "line 14 is <b>cut</b>"}
    ]
    assert found["provenance"]["settings"]["file"]["sha256"]
    assert found["provenance"]["torch"]


def test_a_report_opens_again_as_if_just_computed(made, tmp_path):
    folder, findings = made
    again = report.write(tmp_path, report.read((folder / "report.json").read_bytes()))
    pd.testing.assert_frame_equal(again.rows, findings.rows)
    for name in ("summary.csv", "results.csv", "report.html"):
        mine, before = (without_pictures((where / name).read_text()) for where in (tmp_path, folder))
        assert mine == before
    one, other = (json.loads((where / "report.json").read_text()) for where in (folder, tmp_path))
    del one["provenance"]["created"], other["provenance"]["created"]
    assert one == other


def rendered(findings) -> str:
    """The page of findings."""
    summed = aggregates.summarized(findings)
    return page.html(summed, details.Details(summed))


def without_pictures(text: str) -> str:
    """What a file says: pictures count their gradients through all that was ever drawn."""
    return re.sub('data:image[^"]*', "", text)


def test_one_row_of_a_saved_report_can_be_asked_for(made, plain):
    saved = report.read((made[0] / "report.json").read_bytes())
    wanted = list(plain.outcomes())[4]
    assert saved.one(5).comparison.to_dict() == wanted.comparison.to_dict()
    assert saved.one(13).failure == "line 14 is <b>cut</b>"


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[:200],
        lambda data: b"[]",
        lambda data: data.replace(b"lenses.report/1", b"lenses.report/2"),
        lambda data: data.replace(b'"comparisons": [', b'"comparisons": [{}, '),
        lambda data: data.replace(b'"rows":', b'"lines":'),
        lambda data: data.replace(b'"settings":', b'"asked":'),
        lambda data: data.replace(b'"unit": "logit"', b'"unit": "litre"'),
        lambda data: data.replace(b'"lenses": {"ig-lens"', b'"lenses": {"other"'),
        lambda data: data.replace(b'"depths": [1, 2, 3]', b'"depths": [1, 2, 4]', 1),
        lambda data: b"\xff\xfe\x00",
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(made, harm):
    data = (made[0] / "report.json").read_bytes()
    with pytest.raises(BadRun, match="can't be opened as a report"):
        report.read(harm(data))


# Nothing runs


@given(st.text(max_size=12) | st.from_regex(r"\A'*\s*[=+@\-＝]?.*\Z", fullmatch=True))
def test_neutral_text_is_no_formula_and_reads_back(text):
    harmless = neutral(text)
    assert original(harmless) == text
    assert not re.match(r"\s*[=+\-@\t\r＝＋－＠]", harmless)
    assert harmless in (text, "'" + text)


def test_no_cell_of_the_csv_files_is_a_formula_and_all_text_reads_back(nasty):
    folder, run = nasty
    with open(folder / "summary.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    for one, line in zip(run.outcomes(), lines, strict=True):
        assert not any(re.match(r"\s*[=+@]|\s*-\D", cell) for cell in line.values())
        assert original(line["prompt"]) == original(line["id"]) == original(line["group"]) == one.row.prompt
        (own, text), = one.row.extra  # fmt: skip
        assert original(line[neutral(f"{own} (file)" if own in COLUMNS else own)]) == text
    with open(folder / "results.csv", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            float(line["value"])
            assert not re.match(r"\s*[=+@]", line["prompt"])


def test_no_cell_of_the_workbook_is_a_formula_and_all_text_reads_back(nasty):
    folder, run = nasty
    data = (folder / "report.xlsx").read_bytes()
    book = openpyxl.load_workbook(io.BytesIO(data))
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert {cell.data_type for cell in cells} <= {"s", "n"}
    read = prompts.read(data, "report.xlsx")  # by the reader of prompt lists: a summary is one
    rows = [one.row for one in run.outcomes()]
    assert [(row.prompt, row.id, row.group) for row in read.rows] == [(r.prompt, r.id, r.group) for r in rows]


def test_numbers_stay_numbers_where_some_are_missing(made):
    sheet = openpyxl.load_workbook(made[0] / "report.xlsx")["summary"]
    head = [cell.value for cell in sheet[1]]
    for name in ("row", "line", "probability", "delta", "onset", "gap"):
        column = [cell.value for cell in next(sheet.iter_cols(head.index(name) + 1, head.index(name) + 1))][
            1:
        ]
        assert all(isinstance(value, int | float) for value in column[:-1])
    assert sheet.cell(14, head.index("probability") + 1).value is None  # the failure: blank, not 0


class Page(HTMLParser):
    """What a browser would see of a page: its elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.title, self.data = [], [], "", {}
        self._inside, self._id = "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        self._inside, self._id = tag, dict(attributes).get("id")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, text):
        if self._inside == "title":
            self.title += text
        elif self._inside == "script" and self._id:
            self.data[self._id] = self.data.get(self._id, "") + text


def test_no_text_of_a_user_is_markup_anywhere_in_the_page(nasty, made):
    folder, run = nasty
    text = (folder / "report.html").read_text(encoding="utf-8")
    found, harmless = Page(text), Page((made[0] / "report.html").read_text(encoding="utf-8"))
    assert set(found.tags) <= set(harmless.tags) | {"a"}
    assert found.tags.count("script") == harmless.tags.count("script")
    assert {name for _, name, _ in found.attributes} == {name for _, name, _ in harmless.attributes}
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert IMAGE in found.title
    assert "<img src=x" not in text
    assert "alert(1)</script>" not in text
    kept = json.loads(found.data["details"])["rows"]
    for one in run.outcomes():
        if one.comparison:
            assert kept[str(one.row.row)]["prompt"] == page.visible(one.row.prompt)
    for name, data in found.data.items():
        assert json.loads(data), name


def test_a_page_asks_no_network(nasty):
    found = Page((nasty[0] / "report.html").read_text(encoding="utf-8"))
    places = [value for _, name, value in found.attributes if name in ("src", "href", "action", "srcset")]
    assert places
    assert all(place.startswith(("#", "data:image/svg+xml;base64,")) for place in places)
    (policy,) = [v for tag, name, v in found.attributes if tag == "meta" and v and "default-src" in v]
    assert "default-src 'none'" in policy


# Round trips of any text


@pytest.fixture(scope="module")
def one():
    return explained(count=1)[0]


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=12, deadline=None)
@given(texts=st.lists(st.tuples(ANY.filter(str.strip), ANY, ANY), min_size=1, max_size=4))
def test_any_text_reads_back_from_every_file(one, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    rows = [
        prompts.Row(k, k + 1, prompt, id=id, group=group)
        for k, (prompt, id, group) in enumerate(texts, start=1)
    ]
    outcomes = [Outcome(row, one.comparison) for row in rows]
    run = Run(outcomes)
    findings = gathered(run.settings, outcomes)
    tables.write_summary(folder / "summary.csv", findings)
    tables.write_workbook(folder / "report.xlsx", findings)
    with tables.Results(folder) as results:
        for outcome in outcomes:
            results.add(outcome)
    wanted = [(row.prompt, row.id, row.group) for row in rows]
    with open(folder / "summary.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [tuple(original(line[name]) for name in ("prompt", "id", "group")) for line in lines] == wanted
    frame = pd.read_parquet(folder / "results.parquet").drop_duplicates("row")
    assert list(frame[["prompt", "id", "group"]].itertuples(index=False, name=None)) == wanted
    if "\0" not in "".join(map("".join, wanted)):  # which a reader of lists takes for damage
        read = prompts.read((folder / "report.xlsx").read_bytes(), "report.xlsx").rows
        assert [(row.prompt, row.id, row.group) for row in read] == wanted


# The numbers


def test_the_additivity_table_counts_every_verdict_and_finds_the_worst_gap(made, plain):
    frame = aggregates.additivity(made[1]).set_index("lens")
    results = [r for one in plain.outcomes() if one.comparison for r in one.comparison.results]
    for title, line in frame.iterrows():
        mine = [r for r in results if r.title == title]
        verdicts = [r.additivity.verdict.value for r in mine]
        assert line["prompts"] == len(mine) == 12
        for verdict in ("exact", "converged", "not-converged", "not-claimed", "broken"):
            assert line[verdict] == verdicts.count(verdict)
        if mine[0].additivity.claimed:
            gaps = [abs(r.additivity.gap) for r in mine]
            assert (line["worst"], line["median"]) == (max(gaps), pytest.approx(np.median(gaps)))
        else:
            assert math.isnan(line["worst"])


def test_onsets_are_counted_over_all_and_in_each_group(made, plain):
    mine = [(one.row.group, one.comparison.onsets()["ig-lens"]) for one in plain.outcomes() if one.comparison]
    every, grouped = aggregates.onsets(made[1]), aggregates.onset_groups(made[1])
    for group in (None, "up", "down"):
        depths = [depth for name, depth in mine if group in (None, name)]
        lines = every if group is None else grouped[grouped["group"] == group]
        found = dict(zip(lines["depth"], lines["prompts"], strict=True))
        assert found == {depth: depths.count(depth) for depth in depths}
        assert lines["part"].sum() == pytest.approx(1)
    assert set(grouped["group"]) == {"up", "down"}


def test_a_group_may_be_called_anything(plain):
    """Also “all”, which is no name for the whole."""
    outcomes = [
        replace(o, row=replace(o.row, group=o.row.group.replace("up", "all"))) for o in plain.outcomes()
    ]
    findings = gathered(plain.settings, outcomes)
    assert aggregates.whole(findings)["prompts"] == 12
    assert aggregates.groups(findings).set_index("group")["prompts"].to_dict() == {"all": 4, "down": 4}
    assert aggregates.onsets(findings)["prompts"].sum() == 12


def test_of_many_groups_the_largest_are_shown_and_counted(monkeypatch, plain):
    monkeypatch.setattr(aggregates, "GROUPS", 3)
    outcomes = [
        replace(o, row=replace(o.row, group=f"g{min(o.row.row, 8)}"))
        for o in plain.outcomes()
        if o.comparison
    ]
    findings = gathered(plain.settings, outcomes)
    shown = aggregates.groups(findings)["group"].tolist()
    assert len(shown) == 3
    assert "g8" in shown
    assert set(aggregates.onset_groups(findings)["group"]) == set(shown)
    assert "The 3 largest of 8 groups" in rendered(findings)


@pytest.mark.parametrize(
    ("onsets", "expected"),
    [
        ([3, 10], (3, 3, 10)),
        ([1, 2, 9], (1, 2, 9)),
        ([5], (5, 5, 5)),
        (range(1, 7), (2, 3, 5)),
        ([7, 7, 7, 1], (1, 7, 7)),
    ],
)
def test_a_quartile_is_the_least_depth_by_which_so_many_have_come(onsets, expected):
    found = aggregates.quartiles(pd.Series(list(onsets), dtype="Int64"))
    assert found == expected
    for part, depth in zip((0.25, 0.5, 0.75), found, strict=True):
        assert np.mean([o <= depth for o in onsets]) >= part


def test_a_value_that_is_no_number_is_left_out_of_the_means(plain):
    outcomes = list(plain.outcomes())
    first = outcomes[0].comparison
    ledger, *others = first.results
    values = ledger.attribution.values.copy()
    values[1] = math.nan
    hurt = replace(ledger, attribution=replace(ledger.attribution, values=values))
    hurt = replace(hurt, additivity=replace(hurt.additivity, gap=math.nan))
    outcomes[0] = replace(outcomes[0], comparison=replace(first, results=(hurt, *others)))
    findings = gathered(plain.settings, outcomes)
    assert aggregates.band(findings.lenses[0]).notna().all(axis=None)
    assert aggregates.additivity(findings)["worst"].notna().iloc[0]
    assert "nan" not in " ".join(aggregates.sentences(findings))


def test_a_row_from_which_the_ledger_was_left_out_has_no_numbers_of_another_method(plain):
    outcomes = list(plain.outcomes())
    first = outcomes[0].comparison
    outcomes[0] = replace(outcomes[0], comparison=replace(first, results=first.results[1:]))
    findings = gathered(plain.settings, outcomes)
    line = findings.rows.iloc[0]
    assert pd.isna(line["verdict"])
    assert pd.isna(line["gap"])
    assert line["probability"] == first.probability
    assert "ig-lens had to be left out of 1 prompt" in " ".join(aggregates.sentences(findings))
    assert "left out" in rendered(findings)


def test_a_band_is_the_mean_and_the_middle_half_of_each_depth(made, plain):
    values = np.array([o.comparison.results[0].attribution.values for o in plain.outcomes() if o.comparison])
    frame = aggregates.band(made[1].lenses[0])
    np.testing.assert_allclose(frame["mean"], values.mean(axis=0))
    np.testing.assert_allclose(frame["low"], np.percentile(values, 25, axis=0))
    np.testing.assert_allclose(frame["high"], np.percentile(values, 75, axis=0))


def test_agreement_is_the_mean_of_the_prompts_rank_correlations(made, plain):
    table = aggregates.agreement(made[1])
    for k, j in combinations(range(3), 2):
        mine = []
        for one in plain.outcomes():
            if one.comparison:
                left, right = (r.attribution for r in (one.comparison.results[k], one.comparison.results[j]))
                both = [d for d in left.depths if d in right.depths and d > 0]
                pair = [[a.values[list(a.depths).index(d)] for d in both] for a in (left, right)]
                mine.append(spearmanr(*pair).statistic)
        assert table.iloc[k, j] == table.iloc[j, k] == pytest.approx(np.nanmean(mine))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([0.1, 0.2], 0), ([0.5, -0.2, 0.1], 0.2), ([-0.5, 0.2], 0.2), ([0, 0], 0), ([], 0)],
)
def test_movement_against_the_trend_is_what_went_the_other_way(shares, expected):
    assert against(np.array(shares, dtype=float)) == pytest.approx(expected)


def test_what_stands_out_are_the_extremes(made):
    notable, rows = aggregates.notable(made[1]), made[1].explained.set_index("row")
    lowest = notable["Lowest probability"]
    assert lowest["row"].iloc[0] == rows["probability"].idxmin()
    assert notable["Most movement against the trend"]["row"].iloc[0] == rows["against"].idxmax()
    assert len(lowest) == aggregates.NOTABLE


def test_the_sentences_say_how_many_and_whether_it_adds_up(made):
    told = " ".join(aggregates.sentences(made[1]))
    assert "13 prompts were asked of gpt2; 12 could be explained, and 1 prompt could not" in told
    assert "IG-Lens adds up exactly in 12 of 12 prompts" in told
    assert "not reached" not in told


def test_a_broken_identity_is_said_in_the_sentences_and_counted():
    outcomes = explained(count=2)
    first = outcomes[0].comparison
    lie = replace(
        first.results[0],
        additivity=replace(first.results[0].additivity, verdict=Verdict.BROKEN),
    )
    outcomes[0] = replace(outcomes[0], comparison=replace(first, results=(lie, *first.results[1:])))
    findings = gathered(Run(outcomes).settings, outcomes)
    assert "BROKEN" in " ".join(aggregates.sentences(findings))
    assert aggregates.additivity(findings)["broken"].iloc[0] == 1


# Odd lists

SLOW = [name for name in registry.LENSES if registry.get(name).slow]
ODD = {
    "levels only": lambda: (explained(["logit-lens"], 3), ["logit-lens"]),
    "one method": lambda: (explained(["ig-lens"], 3), ["ig-lens"]),
    "a single prompt": lambda: (explained(count=1)[:1], None),
    "nothing but failures": lambda: (explained(count=2)[-1:], None),
    "slow methods": lambda: (explained(SLOW, 2), SLOW),
    "no groups": lambda: (
        [replace(o, row=replace(o.row, group="", id="")) for o in explained(count=3)],
        None,
    ),
    "nothing moves": lambda: ([still(o) for o in explained(count=3)], None),
}


def ungrouped(outcomes: list[Outcome]) -> list[Outcome]:
    return [replace(one, row=replace(one.row, group="", id="")) for one in outcomes]


def still(one: Outcome) -> Outcome:
    """A prompt of which no lens sees anything change."""
    if one.comparison is None:
        return one
    results = [
        replace(r, attribution=replace(r.attribution, values=0 * r.attribution.values))
        for r in one.comparison.results
    ]
    return replace(one, comparison=replace(one.comparison, results=tuple(results)))


@pytest.mark.parametrize("case", ODD)
def test_a_report_of_an_odd_list_is_written_and_opens_again(case, tmp_path):
    outcomes, names = ODD[case]()
    report.write(tmp_path, Run(outcomes, names))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nan" not in re.sub(r"<script.*?</script>|data:image[^\"]*", "", text, flags=re.S).lower().split()
    parsed((tmp_path / "report.json").read_text())
    assert len(list(report.read((tmp_path / "report.json").read_bytes()).outcomes())) == len(outcomes)


def test_a_page_without_room_keeps_what_stands_out_and_says_so(plain, made, monkeypatch):
    monkeypatch.setattr(aggregates, "NOTABLE", 1)
    summed = aggregates.summarized(made[1])
    room = details.Details(summed, room=0)
    for one in plain.outcomes():
        room.add(one)
    assert 1 <= len(room.kept) <= 3
    assert f"room for the ledgers of {len(room.kept)} prompts" in page.html(summed, room)


def test_a_long_list_shows_its_first_rows_and_says_where_the_others_are(plain, made, monkeypatch):
    monkeypatch.setattr(aggregates, "ROWS", 5)
    text = rendered(made[1])
    found = Page(text)
    ids = {value for tag, name, value in found.attributes if tag == "tr" and name == "id"}
    assert {f"row-{k}" for k in range(1, 6)} <= ids
    assert f"{len(ids)} of 13 prompts" in text
    links = {value for tag, name, value in found.attributes if tag == "a" and name == "href"}
    named = {f"#{value}" for _, name, value in found.attributes if name == "id"}
    assert links <= named  # what stands out is listed, wherever in the list it is


def test_a_workbook_that_cannot_be_written_is_a_sentence(made, tmp_path):
    (tmp_path / "report.xlsx").mkdir()
    with pytest.raises(BadRun, match="can't be written"):
        tables.write_workbook(tmp_path / "report.xlsx", made[1])


def test_results_of_long_texts_are_written_as_they_come(one, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "TEXT", 1000)
    with tables.Results(tmp_path) as results:
        for k in range(1, 5):
            results.add(Outcome(prompts.Row(k, k, "x" * 900), one.comparison))
            assert not results._waiting
    assert pd.read_parquet(tmp_path / "results.parquet")["row"].nunique() == 4


def test_the_workbook_ends_with_a_whole_prompt(plain, made, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "SHEET_LINES", 40)
    tables.write_workbook(tmp_path / "report.xlsx", made[1])
    frame = pd.read_excel(tmp_path / "report.xlsx", sheet_name="results")
    whole = pd.read_parquet(made[0] / "results.parquet")
    assert 0 < len(frame) <= 40
    about = pd.read_excel(tmp_path / "report.xlsx", sheet_name="about").set_index("what")["said"]
    assert f"the first {frame['row'].nunique()} of 12 prompts" in about["results"]
    assert len(frame) == len(whole[whole["row"] <= frame["row"].max()])


def test_a_text_that_no_cell_holds_is_cut_and_says_so(tmp_path, one):
    outcomes = [Outcome(prompts.Row(1, 2, "x" * 40_000), one.comparison)]
    tables.write_workbook(tmp_path / "report.xlsx", gathered(Run(outcomes).settings, outcomes))
    cell = (
        openpyxl.load_workbook(tmp_path / "report.xlsx")["summary"].cell(2, COLUMNS.index("prompt") + 1).value
    )
    assert len(cell) == tables.CELL
    assert cell.endswith(tables.CUT)


def test_columns_of_the_file_that_are_called_like_ours_are_kept_apart(one, tmp_path):
    extra = (("probability", "0.9"), ("probability (file)", "x"), ("row", "=1"))
    outcomes = [Outcome(prompts.Row(1, 2, "w3", extra=extra), one.comparison)]
    frame = tables.summary(gathered(Run(outcomes).settings, outcomes))
    assert list(frame)[len(COLUMNS) :] == ["probability (file)", "probability (file) (file)", "row (file)"]
    assert frame["probability (file)"].tolist() == ["0.9"]
    assert frame["probability (file) (file)"].tolist() == ["x"]


@pytest.mark.parametrize("width", ["container", 600])
def test_every_chart_of_a_report_is_valid_whatever_its_groups_are_called(nasty, width):
    findings = gathered(nasty[1].settings, nasty[1].outcomes())
    summed, blocks = aggregates.summarized(findings), findings.model["blocks"]
    titles = {lens.lens: lens.title for lens in findings.lenses}
    made = [
        charts.onsets(summed.onsets, blocks, width=width),
        charts.onset_groups(summed.onset_groups, blocks, width=width),
        charts.square(summed.agreement, titles, width=width),
    ]
    for lens in summed.counts.lenses:
        made += [
            charts.band(summed.bands[lens.lens], lens, blocks, width=width), charts.panel(lens, blocks)
        ]  # fmt: skip
    made.append(charts.ledger_panel(findings.lenses[0].unit))
    for chart in made:
        chart.to_dict(validate=True)
    groups = [row["group"] for row in charts.spec(made[1])["datasets"].popitem()[1]]
    assert groups
    assert set(groups) <= set(NASTY)


@pytest.mark.parametrize("character", ["\0", "\x01", "\x08", "\x0b", "\x0c", "\x1b", "\ufffe", "\uffff"])
def test_a_character_that_no_picture_can_hold_does_not_end_the_process(character):
    chart = alt.Chart(pd.DataFrame({"text": [f"a{character}b"]})).mark_text().encode(text="text:N")
    assert "a\ufffdb" in charts.save(chart, "svg", title=f"t{character}").decode()
    assert charts.save(chart, "png").startswith(b"\x89PNG")
