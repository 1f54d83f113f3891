"""Where an answer sets in, where its path starts, and what rose and fell: the charts and their sections."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lenses
from lenses import charts, depth_tables, onsets, surfacing
from lenses.audit import audit
from lenses.onset import DEFINITIONS, Path
from lenses.question import ask
from tests import tiny
from tests.ui.pages import charts as drawn
from tests.ui.pages import opened, settle, texts


@pytest.fixture(scope="module")
def asked():
    return ask(tiny.decoder("llama"), tiny.PROMPT, target="w5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("llama", tmp_path_factory.mktemp("models") / "llama"))


def data(chart, field: str) -> list[dict]:
    """Every row of a chart's data that has the field, once a table."""
    return [row for rows in charts.spec(chart)["datasets"].values() for row in rows if field in row]


def table() -> onsets.Onsets:
    """One that never comes to the top, in three blocks."""
    levels, ranks = np.array([0.0, 0.3, 0.1, 0.2]), np.array([40, 12, 30, 11])
    return onsets.table(Path(np.arange(4), levels, ranks, 0.0), {"embedding": 0.0, "zero": 0.4})


def test_the_picture_of_onsets_has_a_dot_or_a_word_for_every_definition():
    chart = charts.setting_in(table(), 3)
    chart.to_dict(validate=True)
    rows = {row["title"]: row for row in data(chart, "title")}
    assert set(rows) == {one.title for one in DEFINITIONS.values()}
    assert rows[DEFINITIONS["top-10"].title]["at"] == "never"
    for one in table().definitions:
        row = rows[DEFINITIONS[one.name].title]
        assert row["at"] == ("never" if one.depth is None else str(one.depth))
        assert row["meaning"] == DEFINITIONS[one.name].meaning
    spans = [(row["title"], row["range"]) for row in data(chart, "range")]
    assert len(spans) == 5 + 4  # two never come; four of the others depend on the baseline


def test_the_table_of_onsets_says_each_range_in_words():
    frame = depth_tables.setting_in(table()).set_index("name")
    assert frame.loc["commits", "by_baseline"] == "does not depend"
    assert frame.loc["top-10", ["at", "by_depths"]].tolist() == ["never", "–"]
    assert frame.loc["moves", ["at", "by_depths", "by_baseline"]].tolist() == ["1", "1–3", "1–2"]


def test_the_strip_holds_every_tokens_probability_and_rings_its_best_depth(asked):
    found = surfacing.peaks(tiny.decoder("llama"), asked.trace, asked.target.position, count=5)
    chart = charts.peaks(found, asked.target.token)
    chart.to_dict(validate=True)
    rows = data(chart, "order")
    cells = {(row["order"], row["depth"]): row["probability"] for row in rows}
    assert cells == {(k, d): p for k, one in enumerate(found) for d, p in enumerate(one.levels.tolist())}
    assert {(row["order"], row["best"]) for row in rows} == {(k, one.depth) for k, one in enumerate(found)}


def test_the_bars_of_a_block_are_its_movers_in_points(asked):
    first, *_ = surfacing.movers(tiny.decoder("llama"), asked.trace, asked.target.position)
    chart = charts.movers(first)
    chart.to_dict(validate=True)
    bars = {row["token"]: row["points"] for row in data(chart, "points")}
    expected = {m.text: 100 * m.change for m in (*first.gained, *first.lost) if abs(m.change) >= 5e-4}
    assert bars == expected


def test_a_block_in_which_nothing_moves_is_drawn_and_said_as_such(asked):
    still = surfacing.Moves(2, (), (), 0.0)
    charts.movers(still).to_dict(validate=True)
    assert depth_tables.blocks([still]).iloc[0].tolist() == [2, "0 %", "–", "–"]


@pytest.mark.parametrize("text", ["$5 **x**", "a.b", "[x]", '"><img>', "'+alert(1)+'"])
def test_a_tokens_text_is_data_and_never_a_field_or_a_formula(text, asked):
    move = surfacing.Move(1, text, 0.1, 0.9)
    for chart in (
        charts.movers(surfacing.Moves(0, (move,), (), 0.8)),
        charts.peaks([surfacing.Peak(1, text, 0, 0.9, np.array([0.9, 0.1]))]),
    ):
        spec = charts.spec(chart)
        spec.pop("datasets")
        assert json.dumps(text) not in json.dumps(spec)


def test_the_table_of_baselines_has_a_row_for_each_in_words(asked):
    found = audit(tiny.decoder("llama"), asked.trace, asked.target, token=9)
    frame = depth_tables.starts(found)
    assert frame["baseline"].tolist() == [one.name for one in found.starts]
    assert frame.loc[0, "variation"] == "0"
    assert frame["likeliest"].str.endswith(" %").all()


@pytest.mark.parametrize(
    ("change", "said"), [(0.772, "+77.2"), (-0.0123, "−1.23"), (0.0, "0"), (-4e-6, "0"), (1.0, "+100")]
)
def test_a_change_is_said_in_points_with_its_sign(change, said):
    assert depth_tables.signed(change) == said


def test_the_page_says_what_each_definition_means_and_how_far_it_moves(folder):
    at = opened(folder, lenses="ig-lens", target="w5")
    made = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5").setting_in
    for one in made.definitions:
        assert DEFINITIONS[one.name].meaning in texts(at)
    for warning in made.warnings:
        assert warning in texts(at)
    assert len(drawn(at)) == 3  # the card, the ledger and the onsets: nothing of a section that is closed


def test_a_section_is_made_when_it_is_opened(folder):
    at = opened(folder, lenses="ig-lens", target="w5")
    assert "no neutral place" not in texts(at)
    at.session_state["starts"] = at.session_state["surfacing"] = True
    settle(at)
    assert "no neutral place" in texts(at)
    frames = {tuple(frame.value.columns[:2]): frame.value for frame in at.dataframe}
    starts = frames["Baseline", "p at the start"]
    assert starts["Baseline"].tolist() == ["embedding", "mean", "zero", "end-of-text", "corpus"]
    assert sorted(frames["Block", "Moved"]["Block"]) == [0, 1, 2]
    assert len(drawn(at)) == 3 + 2
    at.selectbox(key="block").set_value(2)
    at.text_input(key="start_token").set_value("w9")
    settle(at)
    frames = {tuple(frame.value.columns[:2]): frame.value for frame in at.dataframe}
    assert "token" in frames["Baseline", "p at the start"]["Baseline"].tolist()
    at.text_input(key="start_token").set_value("zzz")
    settle(at)
    assert "not in this model's vocabulary; until then, no such baseline is shown" in texts(at)
    assert at.selectbox(key="block").value == 2
