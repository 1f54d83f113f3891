"""Comparisons as pandas tables; the same frames feed the terminal, the charts, the app and the files.

Column names are fixed and plain, so that no text of a user is ever read as a field or a formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lenses.attribution import Claim, Form
from lenses.receipt import place
from lenses.tokens import visible

if TYPE_CHECKING:
    from lenses.attribution import Attribution
    from lenses.outcome import Comparison, Result
    from lenses.surface import Ranked, Surface


def wide(comparison: Comparison) -> pd.DataFrame:
    """One row a depth, one column a lens (its name), in each lens's own unit; blank where it has none."""
    columns = {
        r.attribution.lens: pd.Series(r.attribution.values, r.attribution.depths) for r in comparison.results
    }
    return pd.DataFrame(columns).sort_index().rename_axis("depth")


def depths(comparison: Comparison, result: Result, surface: Surface | None = None) -> pd.DataFrame:
    """One row a depth of a lens: what a chart draws and its tooltip says.

    Columns `depth`, `name`, `value`, `here` (the part of the positions after which the target is
    predicted, for a claim within each depth), `attention` and `mlp` (what they gave of it, where a lens
    says so; blank for a block without such parts); with a surface also `before`, `after` (the target's
    probability, read at the depth that the step comes from and at its own) and `top_before`, `top_after`.
    """
    a = result.attribution
    names = [place(depth) for depth in a.depths.tolist()]
    frame = pd.DataFrame({"depth": a.depths, "name": names, "value": a.values})
    if a.positions is not None:
        frame["here"] = a.positions[:, list(comparison.target.positions)].sum(axis=1)
    if a.halves is not None:
        frame["attention"], frame["mlp"] = a.halves.T
    if surface is not None:
        came = came_from(a)
        start = [a.start if depth else np.nan for depth in a.depths]
        frame["before"] = [s if d is None else surface.levels[d] for s, d in zip(start, came, strict=True)]
        frame["after"] = surface.levels[a.depths]
        frame["top_before"] = ["–" if d is None else listed(surface.top[d]) for d in came]
        frame["top_after"] = [listed(surface.top[d]) for d in a.depths]
    return frame


def ledger(result: Result, fold: float = 0.0) -> pd.DataFrame:
    """The account of a lens that claims a sum across depths, as the bars of a waterfall.

    Columns `order`, `label`, `name`, `low`, `high` (what the bar spans), `change` and `kind` (start,
    up, down, end). Neighbouring steps below `fold` × the largest are put together as one.
    """
    a = result.attribution
    least = fold * float(np.abs(a.values).max(initial=0.0))
    rows, level = [("start", "where the path starts", 0.0, a.start, a.start, "start")], a.start
    if a.constant:
        rows.append(("const.", "the constant: norm and head bias", level, level + a.constant, a.constant,
                     _kind(a.constant)))  # fmt: skip
        level += a.constant
    for group in _groups(np.abs(a.values) < least):
        change = float(a.values[group].sum())
        first, last = int(a.depths[group[0]]), int(a.depths[group[-1]])
        label = str(first) if first == last else f"{first}–{last}"
        name = place(last) if first == last else f"{len(group)} small steps, depth {first} to {last}"
        rows.append((label, name, level, level + change, change, _kind(change)))
        level += change
    rows.append(("end", "the model's own value", 0.0, a.end, a.end, "end"))
    frame = pd.DataFrame(rows, columns=["label", "name", "low", "high", "change", "kind"])
    return frame.rename_axis("order").reset_index()


def pieces(comparison: Comparison, result: Result) -> pd.DataFrame:
    """One row for each depth of each piece of a word, after those of the whole word.

    Columns `row` (a label of its own for every piece), `piece`, `probability` (the model's own, after
    the pieces before it), `depth`, `name`, `value` (in the lens's unit).
    """
    a = result.attribution
    if a.pieces is None:
        raise ValueError(f"{a.lens} has no values of pieces")
    names = [place(depth) for depth in a.depths.tolist()]
    parts = [("the whole word", comparison.target_text, comparison.probability, a.values)]
    for k, piece in enumerate(comparison.pieces):
        label = f"{k + 1}. {visible(piece.text)}  {piece.probability:.1%}"
        parts.append((label, piece.text, piece.probability, a.pieces[:, k]))
    frames = [
        pd.DataFrame({"depth": a.depths, "name": names, "value": values}).assign(
            row=label, piece=visible(text), probability=probability
        )
        for label, text, probability, values in parts
    ]
    return pd.concat(frames, ignore_index=True)


def agreement(comparison: Comparison) -> pd.DataFrame:
    """Spearman's rank correlation of the lenses' values over the depths that both have.

    Levels are compared as levels and shares as shares, each as its method gives it; blank where one
    of two lenses has fewer than three depths or the same value at all.
    """
    return wide(comparison).drop(index=0, errors="ignore").corr(method="spearman", min_periods=3)


def listed(top: tuple[Ranked, ...]) -> str:
    """Tokens with their probabilities, on one line."""
    return "  ·  ".join(f"{visible(r.text)} {r.probability:.1%}" for r in top)


def came_from(a: Attribution) -> list[int | None]:
    """For each depth, the one that its step comes from; None for none, or for a baseline that is none.

    A drop's is the one before the blocks that were left out.
    """
    shown = a.depths.tolist()
    if a.form is Form.DROP:
        return [depth - int(a.options["span"]) for depth in shown]
    if a.claim is not Claim.ACROSS:
        return [depth - 1 if depth else None for depth in shown]
    first = 0 if a.options.get("baseline", "embedding") == "embedding" else None
    return [None if not depth else shown[k - 1] if k else first for k, depth in enumerate(shown)]


def _groups(small: np.ndarray) -> list[list[int]]:
    """Runs of neighbouring small steps, and every other step by itself."""
    groups: list[list[int]] = []
    for k, is_small in enumerate(small):
        if is_small and groups and small[groups[-1][-1]]:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _kind(change: float) -> str:
    return "up" if change >= 0 else "down"
