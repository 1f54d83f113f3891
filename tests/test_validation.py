"""The statistics of a whole list: random scores get an interval that covers 0, the drops themselves 1."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from lenses import validation
from lenses.validation import Scores, holm, interval, needed, swing, validate

PROMPTS, BLOCKS = 80, 12


def scored(seed: int = 0, prompts: int = PROMPTS, **lenses: np.ndarray) -> Scores:
    """Drops as they are, mostly small, and lenses that are random, right, reversed and noisy."""
    draw = np.random.default_rng(seed)
    drops = 0.05 * draw.standard_normal((prompts, BLOCKS)) ** 3
    made = {
        "truth": drops, "liar": -drops, "random": draw.standard_normal((prompts, BLOCKS)),
        "noisy": drops + 0.1 * draw.standard_normal((prompts, BLOCKS)),
    } | lenses  # fmt: skip
    frame = pd.DataFrame(
        {
            "row": np.arange(1, prompts + 1), "id": "", "prompt": "x", "target": "y", "probability": 0.5,
            "group": [["a", "b", ""][k % 3] for k in range(prompts)],
            "swing": [0.2 * (k % 2) for k in range(prompts)],
        }
    )  # fmt: skip
    return Scores(frame, {name: name.title() for name in made}, np.stack([*made.values()]), drops)


@pytest.fixture(scope="module")
def found():
    return validate(scored())


def line(frame: pd.DataFrame, lens: str, subset: str = "all", blocks: str = "all", **more) -> pd.Series:
    chosen = (frame["lens"] == lens) & (frame["subset"] == subset) & (frame["blocks"] == blocks)
    for name, value in more.items():
        chosen &= frame[name] == value
    (row,) = frame[chosen].to_dict("records")
    return pd.Series(row)


@pytest.mark.parametrize("subset", validation.SUBSETS)
@pytest.mark.parametrize("blocks", validation.BLOCKS)
def test_random_scores_get_an_interval_that_covers_0_and_no_small_p_value(found, subset, blocks):
    row = line(found.rows, "random", subset, blocks)
    assert row["spearman_low"] < 0 < row["spearman_high"]
    assert row["kendall_low"] < 0 < row["kendall_high"]
    assert row["p_holm"] > 0.05
    assert row["average_precision"] == pytest.approx(row["average_precision_chance"], abs=0.1)


@pytest.mark.parametrize("subset", validation.SUBSETS)
@pytest.mark.parametrize("blocks", validation.BLOCKS)
def test_the_drops_themselves_get_1(found, subset, blocks):
    row = line(found.rows, "truth", subset, blocks)
    names = ["spearman", "spearman_low", "spearman_high", "kendall", "top1", "top3", "average_precision"]
    assert row[names].tolist() == pytest.approx([1] * len(names))
    assert row["p_value"] == pytest.approx(1 / (1 + validation.DRAWS))
    assert row["p_holm"] < 0.05


def test_a_lens_that_says_the_reverse_is_found_out(found):
    row = line(found.rows, "liar")
    assert row["spearman"] == pytest.approx(-1)
    assert row["p_value"] > 0.5


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says():
    draw = np.random.default_rng(1)
    ends = [interval(draw.normal(0.3, 0.2, 40)) for _ in range(200)]
    covered = np.mean([low <= 0.3 <= high for low, high in ends])
    assert covered == pytest.approx(0.95, abs=0.05)  # 3 standard errors of 200 draws


def test_the_bootstrap_is_near_the_interval_of_student():
    values = np.random.default_rng(2).normal(0.3, 0.2, 100)
    student = t.interval(0.95, 99, values.mean(), values.std(ddof=1) / 10)
    assert interval(values) == pytest.approx(student, abs=0.01)


def test_holms_correction_by_hand():
    # 4 × 0.01, then 3 × 0.02 = 0.06, 2 × 0.03 = 0.06, and 1 × 0.04, which may not be less than before it.
    assert holm(np.array([0.04, 0.01, 0.03, 0.02])).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.5, 0.9])).tolist() == [1, 1]
    np.testing.assert_array_equal(holm(np.array([np.nan, 0.01])), [np.nan, 0.01])


def test_the_prompts_needed_are_those_of_a_half_width_of_5_hundredths():
    values = np.array([0.0, 0.2, 0.4])  # standard deviation 0.2: (1.96 × 0.2 / 0.05)² = 61.5
    assert needed(values) == 62
    assert np.isnan(needed(values[:1]))


def test_a_swing_is_the_largest_movement_against_the_trend():
    assert swing(np.array([0.0, 0.3, 0.1, 0.9])) == pytest.approx(0.2)
    assert swing(np.array([0.0, 0.1, 0.9])) == 0
    assert swing(np.array([0.1, 0.9, 0.3])) == pytest.approx(0.6)
    assert swing(np.array([0.9, 0.2, 0.5, 0.1])) == pytest.approx(0.3)  # a fall that rises on its way


def test_each_subset_and_group_is_the_statistic_of_its_own_prompts(found):
    scores = found.scores
    for subset in ("monotone", "non-monotone"):
        kept = scores.subset(subset)
        alone = Scores(scores.prompts[kept], scores.titles, scores.values[:, kept], scores.drops[kept])
        mine, theirs = line(found.rows, "noisy", subset), line(validate(alone).rows, "noisy")
        assert mine["prompts"] == kept.sum() == PROMPTS / 2
        assert (
            mine[["spearman", "kendall", "top1"]].tolist() == theirs[["spearman", "kendall", "top1"]].tolist()
        )
    assert set(found.groups["group"]) == {"a", "b"}
    counts = [line(found.groups, "noisy", group=group)["prompts"] for group in "ab"]
    assert counts == [27, 27]


def test_without_the_first_two_blocks_they_decide_nothing():
    scores = scored()
    spoilt = scores.values.copy()
    spoilt[:, :, :2] = 1e6
    other = validate(Scores(scores.prompts, scores.titles, spoilt, scores.drops))
    mine, theirs = (line(v.rows, "noisy", blocks="without-first-two") for v in (validate(scores), other))
    assert mine["spearman"] == theirs["spearman"]
    assert line(other.rows, "truth")["spearman"] < 0.9


def test_lenses_are_compared_on_the_same_prompts(found):
    pair = found.differences.query("lens == 'truth' and other == 'noisy' and blocks == 'all'").iloc[0]
    expected = line(found.rows, "truth")["spearman"] - line(found.rows, "noisy")["spearman"]
    assert pair["mean"] == pytest.approx(expected)
    assert 0 < pair["low"] < pair["mean"] < pair["high"]
    assert not found.differences[["lens", "other"]].eq("random").any(axis=None)


def test_a_lens_that_is_missing_in_some_prompts_counts_the_others():
    gaps = np.full((PROMPTS, BLOCKS), np.nan)
    scores = scored()
    gaps[: PROMPTS // 2] = scores.drops[: PROMPTS // 2]
    row = line(validate(scored(gaps=gaps)).rows, "gaps")
    assert (row["prompts"], row["spearman"]) == (PROMPTS // 2, pytest.approx(1))


@pytest.mark.parametrize("prompts", [1, 2])
def test_a_list_of_one_or_two_prompts_has_null_where_there_is_no_number(prompts):
    found = validate(scored(prompts=prompts)).to_dict()
    json.dumps(found, allow_nan=False)
    row = found["rows"][0]
    assert row["prompts"] == prompts
    assert (row["spearman_low"] is None) == (prompts == 1)


def test_the_same_seed_gives_the_same_numbers():
    one, same, other = (validate(scored(), seed=seed).rows for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one, same)
    assert one["spearman_low"].tolist() != other["spearman_low"].tolist()


def test_the_json_has_the_keys_of_the_contract(found):
    made = found.to_dict()
    assert (made["schema"], made["ablation"]) == ("lenses.validation/1", "skip")
    contract = {
        "lens", "subset", "blocks", "spearman", "spearman_low", "spearman_high", "top1", "top3", "onset_test",
        "p_value", "prompts",
    }  # fmt: skip
    assert len(made["rows"]) == 4 * 3 * 2
    for row in made["rows"]:
        assert contract <= set(row)
        assert row["subset"] in {"all", "monotone", "non-monotone"}
        assert row["blocks"] in {"all", "without-first-two"}
        assert isinstance(row["prompts"], int)
