"""The onset by each of its rules, the headline, and the example worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lenses
from lenses.headline import headline, percent
from lenses.onset import RULES, onset
from lenses.tokens import Prompt, Token
from lenses.toy import STATES, worked
from tests import tiny

SHARES = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("shares", "moves", "stays", "largest"),
    [
        ([0.1, 0.1, 0.7], 3, 3, 3),
        ([0.6, -0.5, 0.6], 2, 3, 1),
        ([0.5, -0.4, 0.4, 0.0], 2, 3, 1),
        ([-0.2, -0.3], 2, 2, 2),
        ([0.0, 0.0], None, None, None),
        ([0.5, -0.5], 1, None, 1),
    ],
)
def test_the_onset_by_each_rule_on_sums_done_by_hand(shares, moves, stays, largest):
    depths = np.arange(1, len(shares) + 1)
    found = [onset(depths, np.array(shares), rule) for rule in ("moves", "stays", "largest")]
    assert found == [moves, stays, largest]


@given(SHARES)
def test_from_its_onset_on_at_least_half_of_a_change_stays(shares):
    values = np.array(shares)
    found = onset(np.arange(len(values)), values, "stays")
    running = values.cumsum()
    if found is None:
        assert running[-1] == 0 or not values.any()
        return
    assert (running[found:] / running[-1] >= 0.5).all()
    assert found == 0 or running[found - 1] / running[-1] < 0.5


@given(SHARES, st.integers(1, 9))
def test_an_onset_does_not_change_with_the_unit_and_is_one_of_the_depths(shares, factor):
    depths = np.arange(3, 3 + len(shares))
    for rule in RULES:
        found = onset(depths, np.array(shares), rule)
        assert found is None or found in depths
        assert onset(depths, np.array(shares) * 2.0**factor, rule) == found


def told(levels: list[float], **change: object) -> str:
    """The headline of a comparison whose IG-Lens has these levels."""
    compared = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=["ig-lens"])
    (result,) = compared.results
    a = replace(
        result.attribution, values=np.diff(levels), depths=np.arange(1, len(levels)), start=levels[0],
        end=levels[-1],
    )  # fmt: skip
    return headline(
        replace(compared, results=(replace(result, attribution=a),), probability=levels[-1], **change)
    )


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (
            [0.0, 0.01, 0.07, 0.77],
            "77.0 % after “w3 w17 w9 w41 w22 w8”; block 2 adds 70 points of it, and half of the answer is "
            "there from depth 3 on.",
        ),
        (
            [0.1, 0.9, 0.2, 0.5],
            "50.0 % after “w3 w17 w9 w41 w22 w8”; block 0 adds 80 points of it, and half of the answer is "
            "there from depth 3 on.",
        ),
        (
            [0.9, 0.8, 0.1],
            "10.0 % after “w3 w17 w9 w41 w22 w8”; block 1 takes 70 points away again, and half of its fall "
            "has come by depth 2.",
        ),
        ([0.5, 0.5], "50.0 % after “w3 w17 w9 w41 w22 w8”."),
    ],
)
def test_the_headline_says_what_the_ledger_holds(levels, said):
    assert told(levels) == f"llama gives ‘w5’ {said}"


def test_the_headline_of_chosen_depths_names_the_blocks_between_them():
    chosen = lenses.get("ig-lens", depths=(2,))
    compared = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=[chosen])
    assert "; blocks 0 to 1 together add 4.3 points of it" in headline(compared)


@pytest.mark.parametrize(
    ("baseline", "who"), [("embedding", "; block"), ("zero", "; the embedding and block")]
)
def test_the_headline_says_where_the_path_starts(baseline, who):
    chosen = lenses.get("ig-lens", baseline=baseline, depths=(3,))
    compared = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=[chosen])
    assert who in headline(compared)


def test_the_headline_repeats_the_text_up_to_the_position_and_not_all_of_a_long_one():
    compared = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, position=1, lenses=["logit-lens"])
    assert "after “w3w17”." in headline(compared)
    text = "word " * 100
    long = replace(compared, prompt=Prompt(text, (Token(0, 3, "x"), Token(1, 3, "y"))))
    assert len(headline(long)) < 160
    assert "“…" in headline(long)


@pytest.mark.parametrize(
    ("probability", "said"),
    [(0.7725, "77.2 %"), (1.0, "100.0 %"), (0.00052, "0.052 %"), (1e-9, "less than 0.001 %"), (0.0, "0 %")],
)
def test_a_probability_is_said_with_the_digits_that_help(probability, said):
    assert percent(probability) == said


def test_the_example_worked_by_hand_is_right():
    frame = worked()
    levels = [0.5, np.e / (np.e + 1), np.e / (np.e + np.e**2)]
    assert frame["logit lens: level"].tolist() == pytest.approx(levels)
    shares = frame["IG-Lens: share"].dropna()
    assert shares.sum() == pytest.approx(levels[-1] - levels[0])
    assert frame["DLA: part of the logit"].sum() == STATES[-1, 0] == 1
    # What the page says of it.
    assert shares.round(2).tolist() == [0.23, -0.46]
    assert round(shares.sum(), 2) == -0.23
