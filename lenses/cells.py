"""A depth map as pandas tables: one row a cell, one row a token; field names are fixed and plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lenses.receipt import place
from lenses.tables import came_from, listed
from lenses.tokens import visible

if TYPE_CHECKING:
    from lenses.depth_map import Column, DepthMap
    from lenses.surface import Ranked, Surface


def cells(found: DepthMap, stride: int = 1, threshold: float = 0.0) -> pd.DataFrame:
    """One row for each column and each `stride`-th depth, counted from the last.

    Columns `position`, `token`, `next`, `probability` (the model's own, of `next`), `depth`, `name`,
    `value` (blank where it is smaller than `threshold`); where the map holds what was likeliest, also
    `top_before`, `top_after`, `lost`, `rank` (of the next token) and `entropy` (of all, in bits).
    """
    kept = found.depths[::-1][::stride][::-1].tolist()
    frames = [_column(found, column, kept) for column in found.columns]
    frame = pd.concat(frames, ignore_index=True)
    frame.loc[frame["value"].abs() < threshold, "value"] = np.nan
    return frame


def captions(found: DepthMap) -> pd.DataFrame:
    """One row a column: `position`, `token`, `next`, `probability`, `written` (by the model)."""
    rows = [(*_names(found, c), found.answer_from is not None and c.position >= found.answer_from)
            for c in found.columns]  # fmt: skip
    return pd.DataFrame(rows, columns=["position", "token", "next", "probability", "written"])


def _column(found: DepthMap, column: Column, kept: list[int]) -> pd.DataFrame:
    position, token, following, probability = _names(found, column)
    values = dict(zip(column.attribution.depths.tolist(), column.attribution.values, strict=True))
    frame = pd.DataFrame(
        {"depth": kept, "name": [place(d) for d in kept], "value": [values[d] for d in kept]}
    )
    frame = frame.assign(position=position, token=token, next=following, probability=probability)
    if (seen := column.surface) is not None:
        a = column.attribution
        whence = dict(zip(a.depths.tolist(), came_from(a), strict=True))
        came = [whence[d] for d in kept]
        frame["top_before"] = ["–" if d is None else listed(seen.top[d]) for d in came]
        frame["top_after"] = [listed(seen.top[d]) for d in kept]
        frame["rank"] = [int(seen.ranks[d]) for d in kept]
        frame["entropy"] = [float(seen.entropy[d]) for d in kept]
        frame["lost"] = [_lost(seen, a, b) for a, b in zip(came, kept, strict=True)]
    return frame


def _names(found: DepthMap, column: Column) -> tuple[int, str, str, float]:
    token = found.prompt.tokens[column.position]
    return column.position, visible(token.text), visible(column.target.text), column.target.probability


def _lost(seen: Surface, before: int | None, after: int) -> str:
    """Which of the likeliest tokens lost most between two depths; those below the top count as 0."""

    def chances(top: tuple[Ranked, ...]) -> dict[int, float]:
        return {r.id: r.probability for r in top}

    if before is None:
        return "–"
    left = chances(seen.top[after])
    drops = [(r.probability - left.get(r.id, 0.0), r.text) for r in seen.top[before]]
    drop, text = max(drops, default=(0.0, ""))
    return f"{visible(text)} −{100 * drop:.1f} points" if drop > 5e-4 else "none by 0.05 points"
