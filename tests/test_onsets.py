"""The onset by every definition on paths worked by hand, its ranges, its warnings, and its JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lenses
from lenses import baseline, onsets, outcome
from lenses.onset import DEFINITIONS, NEAR, RULES, Path, find, onset
from lenses.target import Target
from tests import tiny


def path(levels: list[float], ranks: list[int] | None = None, start: float | None = None) -> Path:
    return Path(
        np.arange(len(levels)), np.array(levels, float), np.array(ranks or [1] * len(levels)),
        levels[0] if start is None else start,
    )  # fmt: skip


def found(*arguments) -> dict[str, int | None]:
    return {name: find(path(*arguments), name) for name in DEFINITIONS}


BY_HAND = {
    # levels, ranks at depths 0…L, and each definition's depth
    "a rise that falls back and comes again": (
        [0.0, 0.5, 0.1, 0.6, 0.8], [900, 1, 30, 2, 1],
        # moves .5 .4 .5 .2 = 1.6, half of it by 2; half of 0.8 at 1, and from 3 on
        dict(moves=2, crosses=1, stays=3, commits=3, largest=1) | {"prediction-depth": 4, "top-10": 1},
    ),
    "a fall": (
        [0.8, 0.7, 0.2, 0.5, 0.2], [1, 1, 3, 2, 4],
        # moves .1 .5 .3 .3 = 1.2, half of it by 2; half of −0.6 at 2 (0.2 < 0.5), and 0.5 is just half of it
        dict(moves=2, crosses=2, stays=2, commits=0, largest=2) | {"prediction-depth": None, "top-10": 0},
    ),
    "nothing moves": (
        [0.3, 0.3, 0.3], [11, 11, 11],
        dict(moves=None, crosses=None, stays=None, commits=0, largest=None)
        | {"prediction-depth": None, "top-10": None},
    ),
    "the end is the start": (
        [0.25, 0.75, 0.25], [2, 1, 1],
        dict(moves=1, crosses=None, stays=None, commits=0, largest=1) | {"prediction-depth": 1, "top-10": 0},
    ),
    "the answer has no probability": (
        [0.5, 0.25, 0.0], [1, 11, 11],
        dict(moves=1, crosses=1, stays=1, commits=None, largest=1)
        | {"prediction-depth": None, "top-10": 0},
    ),
    "all in the last step": (
        [0.0, 0.0, 0.0, 0.9], [50, 11, 10, 1],
        dict(moves=3, crosses=3, stays=3, commits=3, largest=3) | {"prediction-depth": 3, "top-10": 2},
    ),
    "there from the beginning": (
        [0.5, 0.75, 1.0], [1, 1, 1],
        dict(moves=1, crosses=1, stays=1, commits=0, largest=1) | {"prediction-depth": 0, "top-10": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND)
def test_each_definition_gives_the_depth_worked_out_by_hand(case):
    levels, ranks, expected = BY_HAND[case]
    assert found(levels, ranks) == expected
    assert expected.keys() == DEFINITIONS.keys()


def test_a_path_from_elsewhere_differs_in_its_first_share_alone():
    here, there = path([0.1, 0.2, 0.8]), path([0.1, 0.2, 0.8], start=0.9)
    assert here.shares.tolist() == pytest.approx([0.1, 0.6])
    assert there.shares.tolist() == pytest.approx([-0.7, 0.6])
    assert (find(here, "moves"), find(there, "moves")) == (2, 1)
    for name, definition in DEFINITIONS.items():
        assert definition.baseline or find(here, name) == find(there, name)


def test_a_thinned_path_keeps_both_ends_and_counts_from_the_last():
    whole = path([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.9], ranks=[9, 8, 7, 6, 5, 4, 1])
    assert whole.thinned(1).depths.tolist() == list(range(7))
    assert whole.thinned(2).depths.tolist() == [0, 2, 4, 6]
    assert whole.thinned(5).depths.tolist() == [0, 1, 6]
    assert whole.thinned(5).shares.sum() == pytest.approx(whole.shares.sum())
    assert whole.thinned(5).ranks.tolist() == [9, 8, 1]
    assert whole.thinned(9).depths.tolist() == [0, 6]


LEVELS = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=2, max_size=14)


@given(LEVELS, st.lists(st.integers(1, 20), min_size=14, max_size=14), st.floats(0, 1))
def test_every_range_holds_its_depth_and_what_crosses_comes_no_later_than_what_stays(levels, ranks, start):
    whole = path(levels, ranks[: len(levels)])
    made = onsets.table(whole, {"embedding": whole.start, "zero": start})
    assert [one.name for one in made.definitions] == list(DEFINITIONS)
    for one in made.definitions:
        assert one.depth == find(whole, one.name)
        if one.depth is None:
            continue
        assert one.depths_low <= one.depth <= one.depths_high
        assert one.span[0] <= one.depth <= one.span[1]
        if DEFINITIONS[one.name].baseline:
            assert one.baseline_low <= one.depth <= one.baseline_high
        else:
            assert (one.baseline_low, one.baseline_high) == (None, None)
    if made.depth("stays") is not None:
        assert made.depth("crosses") <= made.depth("stays")
    for rule in RULES:
        assert find(whole, rule) == onset(whole.depths[1:], whole.shares, rule)


@given(LEVELS)
def test_from_its_commitment_on_no_level_is_below_half_of_the_end(levels):
    at = find(path(levels), "commits")
    if at is None:
        assert levels[-1] == 0
        return
    assert min(levels[at:]) >= levels[-1] / 2
    assert at == 0 or levels[at - 1] < levels[-1] / 2


def test_the_number_of_shares_that_count_is_theirs_where_all_are_alike():
    assert onsets.effective(np.array([0.2, -0.2, 0.2, 0.2])) == pytest.approx(4)
    assert onsets.effective(np.array([0.0, 0.7, 0.0])) == pytest.approx(1)
    assert onsets.effective(np.zeros(3)) == 0


WARNED = {
    # levels, what is warned of
    "a rise in one step": ([0.0, 0.0, 0.8, 0.8], []),
    "uniform": ([0.0, 0.2, 0.4, 0.6, 0.8], ["(4.0 of 4 blocks count)"]),
    "a high start": ([0.2, 0.2, 0.8, 0.8], ["starts at a probability of 20.0%"]),
    "hardly a rise": ([0.0, 0.0, 0.04, 0.04], ["changes by +4 points"]),
    "hardly a fall": ([0.04, 0.0, 0.0, 0.0], ["changes by −4 points"]),
    "nothing at all": ([0.0, 0.0, 0.0], ["changes by +0 points"]),
    "a large fall": ([0.9, 0.1, 0.1, 0.1], ["starts at a probability of 90.0%"]),
    "all of it": ([0.5, 0.51, 0.52], ["(2.0 of 2", "50.0%", "+2 points"]),
    "one block": ([0.0, 0.8], []),
}


@pytest.mark.parametrize("case", WARNED)
def test_each_reason_for_which_an_onset_means_little_is_said_and_no_other(case):
    levels, said = WARNED[case]
    made = onsets.warnings(path(levels))
    assert len(made) == len(said)
    for sentence, part in zip(made, said, strict=True):
        assert part in sentence
        assert sentence.endswith("means little")


@pytest.mark.parametrize("family", tiny.SOME)
def test_a_comparison_holds_the_table_of_its_question_whatever_its_lenses(family):
    decoder = tiny.decoder(family)
    some = lenses.get("ig-lens", baseline="zero", depths=(2,))
    made = lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=[some]).setting_in
    every = lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=["ig-lens", "logit-lens"])
    assert made == every.setting_in
    for rule in RULES:
        assert every.onsets(rule)["ig-lens"] == made.depth(rule)
    levels = every.results[1].attribution.values
    assert made.depth("commits") == find(path(levels), "commits")
    for name in ("commits", "prediction-depth", "top-10"):
        assert every.onsets(name) == {"ig-lens": made.depth(name)}


@pytest.mark.parametrize("family", tiny.SOME)
def test_the_range_over_baselines_is_that_of_ledgers_that_start_there(family):
    decoder = tiny.decoder(family)
    asked = [lenses.get("ig-lens", baseline=name) for name in baseline.PLAIN]
    compared = [lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=[one]) for one in asked]
    for rule in RULES:
        depths = [one.onsets(rule)["ig-lens"] for one in compared]
        (told,) = (one for one in compared[0].setting_in.definitions if one.name == rule)
        assert (told.baseline_low, told.baseline_high) == (min(depths), max(depths))


def test_ranks_are_those_of_a_whole_sort():
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    seen = onsets.path(decoder, trace, Target(5, tiny.TARGET))
    logits = decoder.readout(trace.residual[:, 5]).double()
    order = (-logits).argsort(dim=-1)
    assert seen.ranks.tolist() == [row.tolist().index(tiny.TARGET) + 1 for row in order]
    assert find(seen, "top-10") == next(d for d, rank in enumerate(seen.ranks) if rank <= NEAR)


def test_the_table_goes_to_json_and_back_and_an_older_file_has_none():
    compared = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT, lenses=["ig-lens"])
    data = json.loads(json.dumps(compared.to_dict(), allow_nan=False))
    again = outcome.read(data)
    assert again.setting_in == compared.setting_in
    assert again.to_dict() == data
    del data["onsets"]
    older = outcome.read(data)
    assert older.setting_in is None
    assert older.onsets("commits") == {"ig-lens": None}
    assert older.onsets("moves") == compared.onsets("moves")
    assert "onsets" not in older.to_dict()
