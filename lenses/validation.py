"""Do a lens's scores rank the blocks as skipping them does? Statistics of a whole list, without torch.

Law: scores that are the drops get 1, and scores that know nothing of them an interval that covers 0.
One prompt is one observation: each statistic is taken within a prompt (`ranking`), and its mean, its
bootstrap interval and its permutation test are over prompts. Sources: Efron (1979); Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from lenses import ranking
from lenses.outcome import number

SCHEMA = "lenses.validation/1"
CONTROLS = {"random": "Random scores (control)", "depth": "Block number (control)"}
"""What knows nothing of a prompt: scores that are drawn, and the later the block the more."""
SWING, RELEVANT, HALF_WIDTH = 0.05, 0.10, 0.05
"""The swing of p from which a target is not monotone, the part of p by which a block that matters lowers
it, and the half-width of an interval for which `needed` counts the prompts."""
DRAWS, RESAMPLES = 1999, 2000
"""Of the permutation test and of the bootstrap."""
AT_ONCE = 4_000_000
"""Numbers that a bootstrap holds in memory at once."""
ALL, MONOTONE, NON_MONOTONE = SUBSETS = ("all", "monotone", "non-monotone")
BLOCKS = {"all": 0, "without-first-two": 2}
"""Which blocks count, and the first of them: the first two carry so much that they can decide alone."""
CORRELATIONS = ("spearman", "kendall", "average_precision")
"""What gets an interval."""
SHARES = ("top1", "top3", "onset_test")
COLUMNS = (
    "lens", "subset", "blocks", "spearman", "spearman_low", "spearman_high", "top1", "top3", "onset_test",
    "p_value", "prompts", "title", "group", "kendall", "kendall_low", "kendall_high", "average_precision",
    "average_precision_low", "average_precision_high", "average_precision_chance", "relevant",
    "onset_chance", "p_holm", "needed",
)  # fmt: skip
"""Of a row of results. `relevant` is the part of blocks that matter; `average_precision_chance` and
`onset_chance` are what a random order of the blocks, and the same scores dealt out anew, get on average."""


@dataclass(frozen=True)
class Scores:
    """What each lens says of each block of each prompt, and what p loses when the block is skipped.

    `prompts` has a row a prompt: `row`, `id`, `group`, `prompt`, `target`, `probability` and `swing`.
    A lens that was left out of a prompt has no numbers there. `titles` names the lenses in order.
    """

    prompts: pd.DataFrame
    titles: dict[str, str]
    values: Float[ndarray, "lens prompt block"]
    drops: Float[ndarray, "prompt block"]

    @property
    def relevant(self) -> Bool[ndarray, "prompt block"]:
        """The blocks that matter: without them p is lower by more than `RELEVANT` of itself."""
        return self.drops > RELEVANT * self.prompts["probability"].to_numpy()[:, None]

    def subset(self, name: str) -> Bool[ndarray, " prompt"]:
        """Whether each prompt is in a subset; one whose swing is not known is only in `ALL`."""
        moved = self.prompts["swing"].to_numpy()
        every = np.ones(len(moved), dtype=bool)
        return {ALL: every, MONOTONE: moved <= SWING, NON_MONOTONE: moved > SWING}[name]

    @property
    def groups(self) -> list[str]:
        """The groups that are named, in the list's order."""
        return [group for group in dict.fromkeys(self.prompts["group"]) if group]


@dataclass(frozen=True)
class Validation:
    """The results. `rows` and `groups` have `COLUMNS`; `curves` has `lens`, `blocks`, `highest`,
    `precision`, `recall`; `differences` of two lenses' Spearman has `lens`, `other`, `blocks`, `mean`,
    `low`, `high`, `prompts`; `ranks` has a row a lens, a prompt and a choice of blocks."""

    scores: Scores
    rows: pd.DataFrame
    groups: pd.DataFrame
    curves: pd.DataFrame
    differences: pd.DataFrame
    ranks: pd.DataFrame
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The object of schema `lenses.validation/1`; numbers that do not exist are None."""
        return {
            "schema": SCHEMA,
            "ablation": "skip",
            "rows": records(self.rows.drop(columns=["group"])),
            "groups": records(self.groups),
            "differences": records(self.differences),
            "curves": records(self.curves),
            "settings": {
                "skipped at": "the target's own position", "monotone up to a swing of": SWING,
                "a block matters from a relative drop of": RELEVANT, "permutations": DRAWS,
                "bootstrap resamples": RESAMPLES, "half-width of `needed`": HALF_WIDTH, "seed": self.seed,
            },
        }  # fmt: skip


def validate(scores: Scores, seed: int = 0) -> Validation:
    """The statistics of every lens, for each subset, choice of blocks and group. The same seed gives the
    same numbers."""
    found = {
        (lens, blocks): _each(scores, k, first, np.random.default_rng([seed, k, first]))
        for k, lens in enumerate(scores.titles)
        for blocks, first in BLOCKS.items()
    }
    named = scores.prompts["group"].to_numpy()
    subsets = {(name, ""): scores.subset(name) for name in SUBSETS}
    grouped = {(ALL, group): named == group for group in scores.groups}
    return Validation(
        scores,
        _rows(scores, found, subsets, seed),
        _rows(scores, found, grouped, seed),
        pd.DataFrame(_curves(scores), columns=["lens", "blocks", "highest", "precision", "recall"]),
        _differences(scores, found, seed),
        _ranks(scores, found),
        seed,
    )


def swing(levels: Float[ndarray, " depth"]) -> float:
    """The largest movement of p against its trend: how far it falls below what it had reached by then,
    or, where it ends lower than it began, how far it rises again."""
    path = levels if levels[-1] >= levels[0] else -levels
    return float((np.maximum.accumulate(path) - path).max())


def holm(p_values: Float[ndarray, " test"]) -> Float[ndarray, " test"]:
    """The p-values corrected for how many there are (Holm's step-down); those that are none stay so."""
    made = np.full(len(p_values), np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    made[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return made


def interval(values: Float[ndarray, " n"], seed: int = 0) -> tuple[float, float]:
    """The bootstrap's 95 % interval of the mean (percentiles); none of fewer than two values.

    The same values and seed give the same interval.
    """
    if len(values) < 2:
        return math.nan, math.nan
    from scipy.stats import bootstrap  # which takes seconds to import

    found = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=seed,
        batch=max(1, AT_ONCE // len(values)),
    )  # fmt: skip
    low, high = found.confidence_interval
    return float(low), float(high)


def needed(values: Float[ndarray, " n"]) -> float:
    """How many prompts bring the 95 % interval of the mean to ± `HALF_WIDTH`, at the spread of these."""
    if len(values) < 2:
        return math.nan
    return float(math.ceil((1.96 * values.std(ddof=1) / HALF_WIDTH) ** 2))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them: no NaN."""
    return [
        {str(k): number(v) if isinstance(v, float) else v for k, v in line.items()}
        for line in frame.to_dict("records")
    ]


_Found = dict[tuple[str, str], dict[str, Any]]


def _each(scores: Scores, lens: int, first: int, generator: np.random.Generator) -> dict[str, Any]:
    """Each statistic of a lens, a number a prompt; `chance` has a number a draw and prompt."""
    values, drops, relevant = (
        scores.values[lens][:, first:],
        scores.drops[:, first:],
        scores.relevant[:, first:],
    )
    return {
        "spearman": ranking.spearman(values, drops),
        "kendall": ranking.kendall(values, drops),
        "average_precision": ranking.average_precision(values, relevant),
        "top1": ranking.hits(values, drops, 1),
        "top3": ranking.hits(values, drops, 3),
        "onset_test": ranking.outranked(values, drops),
        "chance": ranking.outranked_by_chance(values, drops, DRAWS, generator),
        "average_precision_chance": ranking.average_precision_by_chance(relevant),
        "relevant": relevant.mean(axis=1) if relevant.size else np.full(len(drops), np.nan),
    }


def _rows(
    scores: Scores,
    found: _Found,
    subsets: dict[tuple[str, str], Bool[ndarray, " prompt"]],
    seed: int,
) -> pd.DataFrame:
    lines = [
        {"lens": lens, "title": scores.titles[lens], "subset": subset, "group": group, "blocks": blocks}
        | _summary({name: values[..., kept] for name, values in each.items()}, seed)
        for (lens, blocks), each in found.items()
        for (subset, group), kept in subsets.items()
    ]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    return frame.assign(p_holm=holm(frame["p_value"].to_numpy(dtype=float)))


def _summary(each: dict[str, Any], seed: int) -> dict[str, Any]:
    """The means over some prompts, with their intervals and tests."""
    made: dict[str, Any] = {"prompts": int(np.isfinite(each["spearman"]).sum())}
    for name in CORRELATIONS:
        values = _known(each[name])
        made |= {name: _mean(values)}
        made[f"{name}_low"], made[f"{name}_high"] = interval(values, seed)
    made |= {name: _mean(_known(each[name])) for name in SHARES}
    chance = _known(_means(each["chance"][:, np.isfinite(each["onset_test"])]))
    least = made["onset_test"] - 1e-12  # what rounding may take from an equal mean
    p_value = (1 + (chance >= least).sum()) / (1 + len(chance)) if len(chance) else math.nan
    held = np.isfinite(each["average_precision"])
    made |= {name: _mean(_known(each[name][held])) for name in ("average_precision_chance", "relevant")}
    return made | {
        "p_value": float(p_value), "onset_chance": _mean(chance),
        "needed": needed(_known(each["spearman"])),
    }  # fmt: skip


def _curves(scores: Scores) -> Iterator[tuple[str, str, int, float, float]]:
    for k, lens in enumerate(scores.titles):
        for blocks, first in BLOCKS.items():
            pair = ranking.precision_recall(scores.values[k][:, first:], scores.relevant[:, first:])
            for highest, (precision, recall) in enumerate(zip(*pair, strict=True), start=1):
                yield lens, blocks, highest, float(precision), float(recall)


def _differences(scores: Scores, found: _Found, seed: int) -> pd.DataFrame:
    """How much better one lens ranks than another or than the block's number, on the prompts of both:
    paired, so that what is hard for both takes nothing away."""
    lines = []
    for one, other in combinations([lens for lens in scores.titles if lens != "random"], 2):
        for blocks in BLOCKS:
            values = _known(found[one, blocks]["spearman"] - found[other, blocks]["spearman"])
            lines.append((one, other, blocks, _mean(values), *interval(values, seed), len(values)))
    return pd.DataFrame(lines, columns=["lens", "other", "blocks", "mean", "low", "high", "prompts"])


def _ranks(scores: Scores, found: _Found) -> pd.DataFrame:
    """Spearman's correlation of each prompt by itself."""
    rows = scores.prompts["row"].to_numpy()
    frames = [
        pd.DataFrame({"lens": lens, "blocks": blocks, "row": rows, "spearman": each["spearman"]})
        for (lens, blocks), each in found.items()
    ]
    return pd.concat(frames, ignore_index=True)


def _known(values: Float[ndarray, " n"]) -> Float[ndarray, " known"]:
    return values[np.isfinite(values)]


def _means(values: Float[ndarray, "draw prompt"]) -> Float[ndarray, " draw"]:
    """The mean of each draw over the prompts that have a number in it."""
    counts = np.isfinite(values).sum(axis=1)
    return np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)


def _mean(values: Float[ndarray, " n"]) -> float:
    return float(values.mean()) if len(values) else math.nan
