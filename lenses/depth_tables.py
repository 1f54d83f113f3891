"""Onsets, baselines and rising tokens as pandas tables; field names are fixed and plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from lenses.headline import percent
from lenses.onset import DEFINITIONS
from lenses.receipt import place, span
from lenses.tokens import visible

if TYPE_CHECKING:
    from lenses.audit import Audit
    from lenses.onsets import Onsets
    from lenses.surfacing import Move, Moves, Peak


LEAST = 5e-4
"""The change of probability from which on a token is said to have moved."""


def setting_in(found: Onsets) -> pd.DataFrame:
    """One row a definition of onset: `title`, `meaning`, `depth` and the ranges' ends `depths_low`,
    `depths_high`, `baseline_low`, `baseline_high` (blank where there is none), and in words `at`,
    `by_depths` and `by_baseline`."""
    rows = []
    for one in found.definitions:
        what = DEFINITIONS[one.name]
        ranges = span(one.depths_low, one.depths_high), span(one.baseline_low, one.baseline_high)
        rows.append(vars(one) | {
            "title": what.title,
            "meaning": what.meaning,
            "at": "never" if one.depth is None else str(one.depth),
            "by_depths": ranges[0],
            "by_baseline": ranges[1] if what.baseline else "does not depend",
        })  # fmt: skip
    ends = ("depth", "depths_low", "depths_high", "baseline_low", "baseline_high")
    return pd.DataFrame(rows).astype(dict.fromkeys(ends, "Int64"))


def starts(found: Audit) -> pd.DataFrame:
    """One row a baseline, in words: `baseline`, `start`, `delta`, `onset`, `first`, `variation`, `rank` and
    `likeliest`; probabilities in percent, changes of them in points."""
    return pd.DataFrame(
        [
            {
                "baseline": one.name,
                "start": percent(one.probability),
                "delta": signed(one.delta),
                "onset": "–" if one.onset is None else str(one.onset),
                "first": signed(one.first),
                "variation": signed(one.variation).lstrip("+"),
                "rank": f"{one.rank:,}",
                "likeliest": f"{visible(one.likeliest.text)} {percent(one.likeliest.probability)}",
            }
            for one in found.starts
        ]
    )


def movers(found: Sequence[Moves]) -> pd.DataFrame:
    """One row a token that moved in a block: `block`, `name`, `token`, `before`, `after` and `change` (in
    probability), the gains first."""
    rows = [
        (one.block, f"block {one.block}", visible(move.text), move.before, move.after, move.change)
        for one in found
        for move in (*one.gained, *one.lost)
    ]
    return pd.DataFrame(rows, columns=["block", "name", "token", "before", "after", "change"])


def blocks(found: Sequence[Moves], count: int = 3) -> pd.DataFrame:
    """One row a block, in words: `block`, `moved`, and the `count` tokens that `rose` and that `fell` most,
    with their changes in points, of at least 0.05."""

    def listed(moves: Sequence[Move]) -> str:
        seen = (move for move in moves[:count] if abs(move.change) >= LEAST)
        return "  ·  ".join(f"{visible(move.text)} {signed(move.change)}" for move in seen) or "–"

    rows = [(one.block, percent(one.moved), listed(one.gained), listed(one.lost)) for one in found]
    return pd.DataFrame(rows, columns=["block", "moved", "rose", "fell"])


def peaks(found: Sequence[Peak]) -> pd.DataFrame:
    """One row a token and depth: `order`, `token`, `depth`, `name`, `probability`, and of the token its
    `best` depth and the probability there, `most`."""
    return pd.DataFrame(
        [
            (order, visible(one.text), depth, place(depth), level, one.depth, one.probability)
            for order, one in enumerate(found)
            for depth, level in enumerate(one.levels.tolist())
        ],
        columns=["order", "token", "depth", "name", "probability", "best", "most"],
    )


def signed(change: float) -> str:
    """A change of probability in percentage points with its sign, three digits."""
    points = f"{100 * change:+.3g}" if abs(change) >= 5e-6 else "0"
    return points.replace("-", "−")
