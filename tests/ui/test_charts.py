"""Charts hold the numbers that they show, no text of a user is a field, and files are whole."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import lenses
from lenses import cells, charts, registry, surface, tables, tokens
from lenses.attribution import Claim, Unit
from lenses.charts.style import ATTENTION, DOWN, MLP, UP, written
from lenses.mapping import mapping
from lenses.progress import finish
from lenses.question import ask
from lenses.receipt import place
from tests import tiny

NASTY = (
    "$5 or $10 _now_ **x**",
    '"><img src=x onerror=alert(1)>',
    "a.b",
    "[x]",
    "it's",
    "a:b",
    "\\",
    "{{1}}",
)


@pytest.fixture(scope="module")
def found():
    decoder = tiny.decoder("llama")
    chosen = [tiny.lens("llama", name) for name in registry.LENSES]
    compared = lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=chosen)
    question = ask(decoder, tiny.PROMPT, target="w5")
    return compared, surface.look(decoder, question.trace, question.target)


def rows(spec: dict) -> list[list[dict]]:
    """The data of every layer, in order."""
    sources = [layer.get("data", spec.get("data")) for layer in spec["layer"]]
    return [spec["datasets"][source["name"]] for source in sources]


@pytest.mark.parametrize("name", registry.LENSES)
def test_a_card_holds_the_lenss_own_values_at_its_own_depths(name, found):
    compared, seen = found
    result = next(r for r in compared.results if r.attribution.lens == name)
    card = charts.card(compared, result, surface=seen, onset=2)
    card.to_dict(validate=True)
    data = rows(charts.spec(card))[0]
    a = result.attribution
    assert [row["depth"] for row in data] == a.depths.tolist()
    assert [row["value"] for row in data] == a.values.tolist()
    assert [row["name"] for row in data] == [place(d) for d in a.depths.tolist()]
    assert [row["after"] for row in data] == seen.levels[a.depths].tolist()
    if a.claim is Claim.WITHIN:
        assert [row["here"] for row in data] == a.positions[:, compared.target.position].tolist()


def test_what_adds_is_blue_what_takes_away_is_orange_and_zero_is_in_the_middle(found):
    compared, _ = found
    result = compared.results[0]
    spec = charts.spec(charts.card(compared, result))
    for row in rows(spec)[0]:
        assert row["fill"] == (UP if row["value"] >= 0 else DOWN)
    low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low == -high
    assert high >= max(abs(v) for v in result.attribution.values)


def test_levels_before_are_those_of_the_depth_that_a_step_comes_from(found):
    compared, seen = found
    chosen = lenses.get("ig-lens", depths=(2,))
    some = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=[chosen])
    frame = tables.depths(some, some.results[0], seen)
    assert frame["depth"].tolist() == [2, 3]
    assert frame["before"].tolist() == [seen.levels[0], seen.levels[2]]
    whole = tables.depths(compared, compared.results[0], seen)
    assert whole["value"].to_numpy() == pytest.approx(whole["after"] - whole["before"], abs=1e-12)


@pytest.mark.parametrize("baseline", ["mean", "zero"])
def test_a_path_that_starts_elsewhere_has_its_start_before_the_first_share(baseline, found):
    _, seen = found
    chosen = lenses.get("ig-lens", baseline=baseline)
    some = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=[chosen])
    frame = tables.depths(some, some.results[0], seen)
    assert frame["value"].to_numpy() == pytest.approx(frame["after"] - frame["before"], abs=1e-12)
    assert frame["top_before"].tolist()[0] == "–"


def test_a_cell_of_chosen_depths_is_beside_the_depth_that_its_step_comes_from():
    decoder = tiny.decoder("gpt2")
    prompt = tokens.encode(decoder.tokenizer, tiny.PROMPT)
    some = finish(mapping(decoder, prompt, registry.get("ig-lens", depths=(1,)), top=5))
    frame = cells.cells(some)
    for cell in frame[frame["depth"] == 3].itertuples():
        assert cell.top_before == tables.listed(some.columns[cell.position].surface.top[1])


@pytest.mark.parametrize("fold", [0.0, 0.2, 2.0])
def test_the_ledger_closes_however_its_small_steps_are_put_together(fold, found):
    compared, _ = found
    result = compared.results[0]
    frame = tables.ledger(result, fold)
    steps = frame[frame["kind"].isin(["up", "down"])]
    assert steps["change"].sum() == pytest.approx(result.attribution.end - result.attribution.start)
    assert steps["low"].iloc[0] == result.attribution.start
    assert steps["high"].iloc[-1] == pytest.approx(result.attribution.end, abs=1e-12)
    assert (steps["low"].iloc[1:].to_numpy() == steps["high"].iloc[:-1].to_numpy()).all()
    assert len(steps) == 3 if fold == 0 else len(steps) <= 3
    charts.ledger(result, fold=fold).to_dict(validate=True)


def test_the_constant_of_dla_stands_in_the_ledger_too():
    compared = lenses.compare(tiny.decoder("phi"), tiny.PROMPT, target="w5", lenses=["dla"])
    (result,) = compared.results
    frame = tables.ledger(result)
    assert frame["high"].iloc[-2] == pytest.approx(result.attribution.end, rel=1e-5)
    assert "const." in frame["label"].tolist()


def test_agreement_is_spearmans_own(found):
    from scipy.stats import spearmanr

    compared, _ = found
    frame, wide = tables.agreement(compared), tables.wide(compared).drop(index=0)
    for one in frame:
        for other in frame:
            assert frame.loc[one, other] == pytest.approx(spearmanr(wide[one], wide[other]).statistic)
    charts.agreement(compared).to_dict(validate=True)


@pytest.fixture(scope="module")
def mapped():
    decoder = tiny.decoder("gpt2")
    prompt = tokens.encode(decoder.tokenizer, "w3 w3 w9 w3")
    return finish(mapping(decoder, prompt, registry.get("ig-lens"), answer=2, top=5))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_map_keeps_every_stride_th_depth_from_the_last_down(stride, mapped):
    frame = cells.cells(mapped, stride)
    assert sorted(set(frame["depth"])) == list(range(3, 0, -stride))[::-1]
    assert len(frame) == len(mapped.columns) * len(set(frame["depth"]))
    for row in frame.itertuples():
        column = mapped.columns[row.position]
        assert row.value == column.attribution.values[list(column.attribution.depths).index(row.depth)]


def test_tokens_that_look_alike_have_cells_of_their_own(mapped):
    spec = charts.spec(charts.heat(mapped, chosen=1))
    data = next(rows for rows in spec["datasets"].values() if "depth" in rows[0])
    assert {(row["position"], row["token"]) for row in data} >= {(0, "w3"), (1, "w3"), (3, "w3")}
    charts.heat(mapped, flipped=True).to_dict(validate=True)


def test_cells_below_the_threshold_are_blank_and_the_others_untouched(mapped):
    whole, some = cells.cells(mapped), cells.cells(mapped, threshold=0.01)
    small = whole["value"].abs() < 0.01
    assert small.any()
    assert some["value"].isna().equals(small)
    assert some.loc[~small, "value"].equals(whole.loc[~small, "value"])


def test_who_lost_most_is_the_largest_fall_among_the_likeliest(mapped):
    frame = cells.cells(mapped)
    for row in frame.itertuples():
        seen = mapped.columns[row.position].surface
        before = {r.id: r.probability for r in seen.top[row.depth - 1]}
        after = {r.id: r.probability for r in seen.top[row.depth]}
        most = max(p - after.get(id, 0.0) for id, p in before.items())
        told = re.search(r"−([0-9.]+) points", row.lost)
        assert (float(told[1]) if told else 0.0) == pytest.approx(100 * max(most, 0), abs=0.051)


def test_more_than_5000_cells_are_drawn_whole():
    decoder = tiny.decoder("llama")
    prompt = tokens.encode(decoder.tokenizer, "w3 w17 " * 900)
    found = finish(mapping(decoder, prompt, registry.get("ig-lens")))
    spec = charts.spec(charts.heat(found))
    assert max(len(rows) for rows in spec["datasets"].values()) == 3 * 1800


@pytest.mark.parametrize("text", NASTY)
def test_a_users_text_is_data_and_never_a_field_or_a_formula(text, found):
    compared, seen = found
    from dataclasses import replace

    token = replace(compared.prompt.tokens[0], text=text)
    changed = replace(
        compared, prompt=replace(compared.prompt, text=text, tokens=(token,) * 6), target_text=text
    )
    for chart in (
        *(charts.card(changed, result, surface=seen, onset=1) for result in changed.results),
        charts.ledger(changed.results[0]),
        charts.agreement(changed),
    ):
        spec = charts.spec(chart)
        spec.pop("datasets")
        assert json.dumps(text) not in json.dumps(spec)


@pytest.mark.parametrize("format", ["png", "svg"])
@pytest.mark.parametrize("text", NASTY)
def test_a_picture_is_whole_and_shows_its_title_as_it_is(format, text, found):
    from io import BytesIO
    from xml.etree import ElementTree

    from PIL import Image

    compared, _ = found
    data = charts.save(charts.card(compared, compared.results[0]), format, title=text)
    if format == "png":
        assert Image.open(BytesIO(data)).size[0] > charts.WIDTH
    else:
        shown = [element.text for element in ElementTree.fromstring(data).iter() if element.text]
        assert text in shown


def test_a_number_that_does_not_exist_is_a_gap_and_not_a_zero(found):
    compared, _ = found
    result = compared.results[1]
    result.attribution.values[1], kept = np.nan, result.attribution.values[1]
    try:
        data = rows(charts.spec(charts.card(compared, result)))[0]
    finally:
        result.attribution.values[1] = kept
    assert data[1]["value"] is None


@pytest.mark.parametrize("name", ["ig-lens", "dla"])
def test_a_card_with_halves_has_two_bars_a_block_and_says_where_there_are_none(name):
    decoder = tiny.decoder("jamba")
    compared = lenses.compare(decoder, tiny.PROMPT, lenses=[registry.get(name, halves=True)])
    result = compared.results[0]
    card = charts.card(compared, result)
    card.to_dict(validate=True)
    spec = charts.spec(card)
    whole, parts = rows(spec)[:2]
    pair = result.attribution.halves[result.attribution.depths.tolist().index(2)]
    assert [(r["depth"], r["half"]) for r in parts] == [(2, "attention"), (2, "MLP")]
    assert [r["part"] for r in parts] == pair.tolist()
    told = {r["depth"]: (r["attention_text"], r["mlp_text"]) for r in whole}
    assert told[1] == told[3] == ("not available for this block",) * 2
    assert told.get(0, ("–", "–")) == ("–", "–"), "the embedding is no block"
    assert "not" not in told[2][0] + told[2][1]
    bars = spec["layer"][1]["encoding"]
    assert bars["fill"]["scale"] == {"domain": ["attention", "MLP"], "range": [ATTENTION, MLP]}
    assert bars["xOffset"]["field"] == "half"
    assert {t["title"] for t in bars["tooltip"]} >= {"Part", "Of it, attention", "Of it, the MLP"}
    height = spec["layer"][0]["encoding"]["y"]["scale"]["domain"][1]
    assert height >= np.nanmax(np.abs(result.attribution.halves))


@pytest.mark.parametrize("family", ["mamba", "gptj"])
def test_a_card_with_halves_is_drawn_whether_all_blocks_have_them_or_none(family):
    decoder = tiny.decoder(family)
    compared = lenses.compare(decoder, tiny.PROMPT, lenses=[registry.get("dla", halves=True)])
    data = charts.save(charts.card(compared, compared.results[0]), "svg")
    assert (b">attention<" in data) is (family == "gptj")


def test_a_number_in_a_text_is_written_as_the_charts_write_it():
    assert written(-0.01234, Unit.PROBABILITY) == "−1.23%"
    assert written(0.5, Unit.PROBABILITY) == "50%"
    assert written(-2.71828, Unit.LOGIT) == "−2.718"
