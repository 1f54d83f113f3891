"""The map: tokens across, depths up, colour for the lens's value of each position's next token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from lenses.cells import captions
from lenses.cells import cells as every_cell
from lenses.charts.style import MARK, axis_format, digits, value_scale
from lenses.receipt import place

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap

CELL, ROW = 44, 15
"""Pixels of a cell across and along the depths; a long text scrolls instead of shrinking."""
WIDEST, SCREEN = 110, 900
"""A short text has wider cells, up to so many pixels, while they fit a screen."""
PICK = "pick"
"""The name of the selection that a click makes; its field is `position`."""


def heat(
    found: DepthMap, *, stride: int = 1, threshold: float = 0.0, flipped: bool = False,
    chosen: int | None = None, tall: float = 1.0,
) -> alt.LayerChart:  # fmt: skip
    """A cell for each token and every `stride`-th depth; values below `threshold` are left blank.

    The last depth is on top, or at the right where the axes are `flipped`. A token's position is its
    key and its text only a label, so that tokens that look alike stay apart. Cells are `tall` times as
    high as usual: for a map of few depths that stands where one of many will be.
    """
    cells, tokens = every_cell(found, stride, threshold), captions(found)
    down = [place(d) for d in sorted({int(d) for d in cells["depth"]}, reverse=True)]
    wide = min(WIDEST, max(CELL, SCREEN // len(found.columns)))
    step_across, step_down = (ROW * tall, CELL) if flipped else (wide, ROW * tall)
    depth: dict[str, Any] = dict(
        sort=down[::-1] if flipped else down, title=None,
        axis=alt.Axis(labelOverlap="greedy", ticks=False, domain=False, labelAngle=-90 if flipped else 0),
    )  # fmt: skip
    token: dict[str, Any] = dict(
        sort=tokens["position"].tolist(), title=None, axis=None, scale=alt.Scale(paddingInner=0.04)
    )
    across, up = ("name:O", "position:O") if flipped else ("position:O", "name:O")
    x = alt.X(across, **(depth if flipped else token))
    y = alt.Y(up, **(token if flipped else depth))
    pick = alt.selection_point(name=PICK, fields=["position"], on="click", empty=True)
    rects = alt.Chart(cells).mark_rect(cursor="pointer").encode(
        x, y, color=_colour(found), tooltip=_tooltip(found, cells)
    ).add_params(pick)  # fmt: skip
    labels = _labels(tokens, y if flipped else x)
    layers = [rects, labels]
    if chosen is not None:
        frame = tokens[tokens["position"] == chosen]
        outline = alt.Chart(frame).mark_rect(fillOpacity=0, stroke=MARK, strokeWidth=2)
        layers.insert(0, outline.encode(y if flipped else x))
    drawn = alt.layer(*layers).resolve_scale(color="independent")
    return drawn.properties(width=alt.Step(step_across), height=alt.Step(step_down))


def _colour(found: DepthMap) -> alt.Color:
    a = found.lens
    legend = alt.Legend(title=a.unit.value, format=axis_format(a.unit), orient="top", gradientLength=220)
    scale = value_scale(pd.Series(found.values.ravel()), a.form)
    return alt.Color("value:Q", scale=scale, legend=legend)


def _labels(tokens: pd.DataFrame, place: alt.X | alt.Y) -> alt.Chart:
    """The tokens beside the cells, as text marks: data, not an axis, and clickable."""
    base = alt.Chart(tokens.assign(ink=tokens["written"].map({True: MARK, False: "#7d8190"})))
    hints = [
        alt.Tooltip("token:N", title="Token"),
        alt.Tooltip("position:O", title="Position"),
        alt.Tooltip("next:N", title="Next token"),
        alt.Tooltip("probability:Q", title="The model's probability", format=".3~%"),
    ]
    colour = alt.Color("ink:N", scale=None, legend=None)
    if isinstance(place, alt.Y):
        return base.mark_text(align="right", dx=-8, fontSize=12, cursor="pointer").encode(
            place, x=alt.XValue(0), text=alt.Text("token:N"), color=colour, tooltip=hints
        )
    return base.mark_text(
        align="right", angle=315, baseline="middle", dx=-6, dy=8, fontSize=12, cursor="pointer"
    ).encode(
        place, y=alt.YValue("height"), text=alt.Text("token:N"), color=colour, tooltip=hints
    )  # fmt: skip


def _tooltip(found: DepthMap, cells: pd.DataFrame) -> list[alt.Tooltip]:
    a = found.lens
    shown = [
        alt.Tooltip("token:N", title="Token"),
        alt.Tooltip("position:O", title="Position"),
        alt.Tooltip("next:N", title="Next token"),
        alt.Tooltip("probability:Q", title="The model's probability", format=".3~%"),
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("value:Q", title=f"Value ({a.unit.value})", format=digits(a.unit)),
    ]
    if "top_after" in cells:
        shown += [
            alt.Tooltip("rank:Q", title="The next token's rank", format=","),
            alt.Tooltip("entropy:Q", title="Entropy of all tokens (bits)", format=".2f"),
            alt.Tooltip("top_before:N", title="Top 5 before"),
            alt.Tooltip("top_after:N", title="Top 5 after"),
            alt.Tooltip("lost:N", title="Lost most"),
        ]
    return shown
