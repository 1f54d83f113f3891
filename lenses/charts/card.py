"""One lens, depth by depth: bars for shares and drops, a line for levels, totals within each depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import numpy as np
import pandas as pd

from lenses import tables
from lenses.attribution import Form
from lenses.charts.style import (
    ATTENTION,
    FILL,
    LEVEL,
    MARK,
    MLP,
    QUIET,
    amount_axis,
    depth_axis,
    digits,
    short,
    sign,
    written,
)
from lenses.receipt import amount

if TYPE_CHECKING:
    from lenses.outcome import Comparison, Result
    from lenses.surface import Surface

HEIGHT = 210
NO_HALVES = "not available for this block"
ONE = alt.Chart(alt.InlineData(values=[{}]))
"""A single datum, for lines and words that stand at a place of their own."""


def card(
    comparison: Comparison,
    result: Result,
    *,
    surface: Surface | None = None,
    onset: int | None = None,
    width: int | str = "container",
) -> alt.LayerChart:
    """A lens's values over depths 0…L, with the onset marked where one is given.

    With a surface, a tooltip says what the target and the likeliest tokens were before and after.
    """
    a = result.attribution
    frame, blocks = tables.depths(comparison, result, surface), comparison.model["blocks"]
    frame["fill"] = sign(frame["value"])
    layers = {Form.LEVEL: _levels, Form.SHARE: _shares, Form.TOTAL: _totals, Form.DROP: _drops}[a.form](
        result, frame, blocks
    )
    if onset is not None:
        at = frame.loc[frame["depth"] == onset, "value"]
        layers += _onset(onset, blocks, low=bool((at >= 0).all()))
    return alt.layer(*layers, height=HEIGHT, width=width)


def tooltip(result: Result, frame: pd.DataFrame, field: str = "value") -> list[alt.Tooltip]:
    """What a reader learns of a depth by pointing at it."""
    a, percent = result.attribution, ".3~%"
    shown = [
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip(f"{field}:Q", title=amount(a.form, a.unit).capitalize(), format=digits(a.unit)),
    ]
    if "here" in frame:
        shown.append(alt.Tooltip("here:Q", title="At the target's position", format=digits(a.unit)))
    if "attention" in frame:
        shown += [
            alt.Tooltip("attention_text:N", title="Of it, attention"),
            alt.Tooltip("mlp_text:N", title="Of it, the MLP"),
        ]
    if "before" in frame:
        shown += [
            alt.Tooltip("before:Q", title="Target's level before", format=percent),
            alt.Tooltip("after:Q", title="Target's level after", format=percent),
            alt.Tooltip("top_before:N", title="Top 5 before"),
            alt.Tooltip("top_after:N", title="Top 5 after"),
        ]
    return shown


def _shares(result: Result, frame: pd.DataFrame, blocks: int) -> list[alt.Chart]:
    a, split = result.attribution, "attention" in frame and bool(frame["attention"].notna().any())
    span = pd.concat([frame[name] for name in ("value", "attention", "mlp") if name in frame])
    y = amount_axis("value:Q", a.unit, f"share of {_unit(result)}", _symmetric(span))
    if "attention" in frame:
        _say_halves(result, frame)
    pale = {"opacity": 0.3} if split else {}
    bars = alt.Chart(frame).mark_bar(**pale).encode(
        depth_axis(blocks), y, color=FILL, tooltip=tooltip(result, frame)
    )  # fmt: skip
    return [bars, *([_halves(result, frame)] if split else []), _rule(0.0)]


def _halves(result: Result, frame: pd.DataFrame) -> alt.Chart:
    """Two narrow bars in a depth's slot: attention to the left, the MLP to the right."""
    columns = {"attention": "attention", "mlp": "MLP"}
    rows = frame.melt(
        [name for name in frame if name not in columns], list(columns), "half", "part"
    ).dropna(subset="part")  # fmt: skip
    rows["half"] = rows["half"].map(columns)
    names = list(columns.values())
    fill = alt.Fill(
        "half:N", title=None, scale=alt.Scale(domain=names, range=[ATTENTION, MLP]),
        legend=alt.Legend(orient="top", symbolType="square"),
    )  # fmt: skip
    place = alt.XOffset("half:N", scale=alt.Scale(domain=names, paddingOuter=0.15))
    return alt.Chart(rows).mark_bar().encode(
        alt.X("depth:O"), alt.Y("part:Q"), place, fill, tooltip=_half_tooltip(result, frame)
    )  # fmt: skip


def _half_tooltip(result: Result, frame: pd.DataFrame) -> list[alt.Tooltip]:
    """The depth's own tooltip, with the part that is pointed at first."""
    unit = result.attribution.unit
    name = alt.Tooltip("half:N", title="Part")
    part = alt.Tooltip("part:Q", title=f"Its share ({unit.value})", format=digits(unit))
    return [name, part, *tooltip(result, frame)]


def _say_halves(result: Result, frame: pd.DataFrame) -> None:
    """The halves as texts, since some blocks have none: a column each for the tooltips."""
    unit = result.attribution.unit
    for column in ("attention", "mlp"):
        said = [NO_HALVES if np.isnan(v) else written(v, unit) for v in frame[column]]
        frame[f"{column}_text"] = ["–" if d == 0 else s for d, s in zip(frame["depth"], said, strict=True)]


def _levels(result: Result, frame: pd.DataFrame, blocks: int) -> list[alt.Chart]:
    a = result.attribution
    y = amount_axis("value:Q", a.unit, _unit(result))
    line = alt.Chart(frame).mark_line(
        color=LEVEL, strokeWidth=2, point=alt.OverlayMarkDef(color=LEVEL, size=36, filled=True)
    ).encode(depth_axis(blocks), y, tooltip=tooltip(result, frame))  # fmt: skip
    return [line]


def _drops(result: Result, frame: pd.DataFrame, blocks: int) -> list[alt.Chart]:
    y = amount_axis("value:Q", result.attribution.unit, _unit(result), _symmetric(frame["value"]))
    bars = alt.Chart(frame.dropna(subset="value")).mark_bar().encode(
        depth_axis(blocks), y, color=FILL, tooltip=tooltip(result, frame)
    )  # fmt: skip
    return [bars, _rule(0.0)]


def _totals(result: Result, frame: pd.DataFrame, blocks: int) -> list[alt.Chart]:
    """Wide pale bars for a depth's total, narrow full ones for the target position's part of it."""
    a = result.attribution
    expected = a.end - a.start
    span = pd.concat([frame["value"], frame["here"], pd.Series([expected])])
    y = amount_axis("value:Q", a.unit, f"total of {_unit(result)}", _symmetric(span))
    hints, frame["part_fill"] = tooltip(result, frame), sign(frame["here"])
    total = alt.Chart(frame).mark_bar(opacity=0.45).encode(
        depth_axis(blocks), y, color=FILL, tooltip=hints
    )  # fmt: skip
    part = alt.Chart(frame).mark_bar(width=alt.RelativeBandSize(0.35)).encode(
        alt.X("depth:O"), alt.Y("here:Q"), tooltip=hints,
        color=alt.Color("part_fill:N", scale=None, legend=None),
    )  # fmt: skip
    return [total, part, _rule(0.0), _rule(expected, dashed=True)]


def _rule(at: float, dashed: bool = False) -> alt.Chart:
    dash = [4, 3] if dashed else [1, 0]
    return ONE.mark_rule(color=QUIET, strokeDash=dash).encode(alt.YDatum(at))


def _onset(depth: int, blocks: int, low: bool) -> list[alt.Chart]:
    """The onset as a line through the depth, with the word on the side where the bar is not."""
    place, right = alt.XDatum(depth, type="ordinal"), depth > blocks / 2
    word = ONE.mark_text(
        align="right" if right else "left", dx=-5 if right else 5, dy=-5 if low else 5, color=MARK,
        baseline="bottom" if low else "top", fontWeight="bold", fontSize=11,
    ).encode(place, alt.YValue("height" if low else 0), text=alt.TextValue("onset"))  # fmt: skip
    return [ONE.mark_rule(color=MARK, strokeDash=[2, 2]).encode(place), word]


def _symmetric(values: pd.Series) -> list[float]:
    """A domain with zero in its middle, so that up and down are measured alike."""
    largest = float(np.nanmax(np.abs(values), initial=0.0)) * 1.08
    return [-largest, largest] if largest > 0 else [-1.0, 1.0]


def _unit(result: Result) -> str:
    return short(result.attribution.unit)
