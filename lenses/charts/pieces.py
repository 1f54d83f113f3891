"""A word of several tokens, piece by piece: one row each, and the whole word on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from lenses import tables
from lenses.charts.style import axis_format, depth_axis, digits, value_scale

if TYPE_CHECKING:
    from lenses.outcome import Comparison, Result

ROW = 34
"""Pixels of a row."""


def pieces(comparison: Comparison, result: Result, *, width: int | str = "container") -> alt.Chart:
    """A cell for each piece and depth, coloured by what the lens gives to the piece by itself."""
    frame, unit = tables.pieces(comparison, result), result.attribution.unit
    scale = value_scale(frame["value"], result.attribution.form)
    order = frame["row"].drop_duplicates().tolist()
    legend = alt.Legend(
        title=unit.value, format=axis_format(unit), orient="top", gradientLength=200, tickCount=5
    )  # fmt: skip
    axis = alt.Axis(title=None, ticks=False, domain=False, labelLimit=170)
    hints = [
        alt.Tooltip("piece:N", title="Token"),
        alt.Tooltip("probability:Q", title="The model's probability", format=".3~%"),
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("value:Q", title=f"Value ({unit.value})", format=digits(unit)),
    ]
    return alt.Chart(frame).mark_rect(stroke="#80808030").encode(
        depth_axis(comparison.model["blocks"]), alt.Y("row:N", sort=order, axis=axis),
        color=alt.Color("value:Q", scale=scale, legend=legend), tooltip=hints,
    ).properties(height=alt.Step(ROW), width=width)  # fmt: skip
