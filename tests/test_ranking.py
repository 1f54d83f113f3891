"""How well scores rank: each statistic against scipy or worked by hand, and a lie is found out."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from lenses import ranking

SCORES = np.array([[0.1, 0.4, 0.2, -0.3, 0.0]])
TRUTH = np.array([[0.2, 0.3, 0.1, 0.4, 0.0]])
STATISTICS = {
    "spearman": ranking.spearman,
    "kendall": ranking.kendall,
    "top 1": lambda scores, truth: ranking.hits(scores, truth, 1),
    "outranked": ranking.outranked,
    "average precision": lambda scores, truth: ranking.average_precision(scores, truth > 0.5),
}


def drawn(seed: int, prompts: int = 8, blocks: int = 12, digits: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((prompts, blocks)).round(digits)


@pytest.mark.parametrize("digits", [12, 0])  # 0: many ties
def test_the_correlations_are_those_of_scipy(digits):
    scores, truth = drawn(1, digits=digits), drawn(2, digits=digits)
    for k, (one, other) in enumerate(zip(scores, truth, strict=True)):
        assert ranking.spearman(scores, truth)[k] == pytest.approx(spearmanr(one, other).statistic)
        assert ranking.kendall(scores, truth)[k] == pytest.approx(kendalltau(one, other).statistic)


def test_a_hit_is_the_costliest_block_among_the_highest_scores():
    assert [ranking.hits(SCORES, TRUTH, most)[0] for most in (1, 3, 4, 5)] == [0, 0, 0, 1]
    assert ranking.hits(-SCORES, TRUTH, 1)[0] == 1


def test_blocks_that_tie_share_the_places_that_are_left():
    scores = np.array([[3.0, 1.0, 1.0, 0.0]])
    truth = np.array([[0.0, 0.0, 1.0, 0.0]])
    assert [ranking.hits(scores, truth, most)[0] for most in (1, 2, 3)] == [0, 0.5, 1]


def test_the_named_block_is_where_half_of_all_movement_has_happened():
    assert ranking.named(SCORES).tolist() == [1]  # 0.1 + 0.4 of 1.0
    assert ranking.named(np.array([[0.0, 0.0, -2.0, 1.0]])).tolist() == [2]


def test_the_papers_test_by_hand():
    # Block 1 is named and scores highest; of the four others, those of truth 0.2, 0.1 and 0.0 cost less.
    assert ranking.outranked(SCORES, TRUTH)[0] == 0.75
    # Named and lowest of all: nothing can be said.
    assert np.isnan(ranking.outranked(np.array([[-5.0, 1.0, 2.0]]), np.array([[1.0, 2.0, 3.0]]))[0])


def test_what_chance_gives_is_the_statistic_of_shuffled_scores():
    """The mean over draws is that over all orders, which are few enough to go through."""
    scores, truth = np.array([[0.6, 0.3, -0.2, 0.1]]), np.array([[0.4, 0.1, 0.3, 0.2]])
    every = [ranking.outranked(np.array([order]), truth)[0] for order in permutations(scores[0])]
    drawn = ranking.outranked_by_chance(scores, truth, 4000, np.random.default_rng(0))
    assert np.nanmean(drawn) == pytest.approx(np.nanmean(every), abs=0.02)  # 4 standard errors
    assert np.isnan(drawn).mean() == pytest.approx(np.isnan(every).mean(), abs=0.03)


def test_average_precision_by_hand():
    scores = np.array([[4.0, 3.0, 2.0, 1.0]])
    relevant = np.array([[True, False, True, False]])
    assert ranking.average_precision(scores, relevant)[0] == pytest.approx((1 / 1 + 2 / 3) / 2)
    precision, recall = ranking.precision_recall(scores, relevant)
    assert precision.tolist() == pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])
    assert recall.tolist() == [0.5, 0.5, 1, 1]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_chance_in_average_precision_is_its_mean_over_all_orders(count):
    relevant = np.arange(5) < count
    orders = np.array([*permutations([0.0, 1.0, 2.0, 3.0, 4.0])])
    every = ranking.average_precision(orders, np.tile(relevant, (len(orders), 1)))
    chance = ranking.average_precision_by_chance(relevant[None])[0]
    assert chance == pytest.approx(np.mean(every))
    assert chance > count / 5


@pytest.mark.parametrize("name", STATISTICS)
def test_the_truth_ranks_itself_perfectly_and_its_reverse_does_not(name):
    truth, statistic = drawn(3), STATISTICS[name]
    truth[:, 0] = 9.0  # so that the named block is the one of the largest truth
    assert np.nan_to_num(statistic(truth, truth), nan=1.0) == pytest.approx(1)
    assert np.nanmean(statistic(-truth, truth)) < 0.6


@pytest.mark.parametrize("name", [name for name in STATISTICS if name != "outranked"])
def test_no_statistic_changes_when_all_blocks_change_places(name):
    """But the paper's, whose named block depends on the order of depths."""
    scores, truth, order = drawn(4), drawn(5), np.random.default_rng(6).permutation(12)
    moved = STATISTICS[name](scores[:, order], truth[:, order])
    np.testing.assert_allclose(moved, STATISTICS[name](scores, truth))


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("spoilt", ["missing", "alike", "few"])
def test_a_prompt_that_cant_be_ranked_has_no_number_and_takes_no_other_along(name, spoilt):
    scores, truth = drawn(7), drawn(8)
    if spoilt == "missing":
        scores[0] = np.nan
    elif spoilt == "alike":
        scores[0] = 3.0
    else:
        scores, truth = scores[:, :2], truth[:, :2]
    found = STATISTICS[name](scores, truth)
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).any() == (spoilt != "few")
