"""A whole list of prompts: where its answers set in, and what each depth gives on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from lenses.attribution import Form
from lenses.charts.style import FILL, LEVEL, MARK, PALE, QUIET, UP, amount_axis, depth_axis, digits, sign
from lenses.receipt import amount, place

if TYPE_CHECKING:
    import pandas as pd

    from lenses.summary import LensSummary

ROW, BAND, ONSETS = 26, 210, 200
"""Pixels: of a group's row, and the heights of the other charts."""


def onsets(frame: pd.DataFrame, blocks: int, *, width: int | str = "container") -> alt.Chart:
    """How many prompts' answers set in at each depth; the frame is that of `aggregates.onsets`."""
    frame = frame.assign(fill=MARK)
    frame["name"] = frame["depth"].map(place)
    hints = [
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("prompts:Q", title="Prompts"),
        alt.Tooltip("part:Q", title="Part of all", format=".1%"),
    ]
    y = alt.Y("prompts:Q", title="prompts", axis=alt.Axis(tickCount=5, tickMinStep=1, format="d"))
    bars = alt.Chart(frame).mark_bar()
    return bars.encode(depth_axis(blocks, "onset depth"), y, color=FILL, tooltip=hints).properties(
        height=ONSETS, width=width
    )


def onset_groups(frame: pd.DataFrame, blocks: int, *, width: int | str = "container") -> alt.Chart:
    """The same for each group: a row a group, its colour the part of the group's prompts.

    Groups stand in the data's order: a list of names to sort by would be read as an expression.
    """
    frame = frame.assign(name=frame["depth"].map(place))
    hints = [
        alt.Tooltip("group:N", title="Group"),
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("prompts:Q", title="Prompts"),
        alt.Tooltip("part:Q", title="Part of its group", format=".1%"),
    ]
    scale = alt.Scale(range=[PALE, MARK], interpolate="rgb", domainMin=0)
    legend = alt.Legend(title="part of its group", format="~%", orient="top", gradientLength=160)
    y = alt.Y(
        "group:N", sort=None, title=None,
        axis=alt.Axis(labelLimit=170, ticks=False, domain=False),
    )  # fmt: skip
    return alt.Chart(frame).mark_rect(stroke="#80808020").encode(
        depth_axis(blocks, "onset depth"), y, tooltip=hints,
        color=alt.Color("part:Q", scale=scale, legend=legend),
    ).properties(height=alt.Step(ROW), width=width)  # fmt: skip


def band(
    frame: pd.DataFrame, lens: LensSummary, blocks: int, *, width: int | str = "container"
) -> alt.LayerChart:
    """A lens's mean over the prompts at each depth, and the middle half of them around it; the frame is
    that of `aggregates.band`."""
    frame = frame.assign(name=frame["depth"].map(place), fill=sign(frame["mean"]))
    hints = [
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("mean:Q", title=f"Mean {amount(lens.form, lens.unit)}", format=digits(lens.unit)),
        alt.Tooltip("low:Q", title="A quarter lies below", format=digits(lens.unit)),
        alt.Tooltip("high:Q", title="A quarter lies above", format=digits(lens.unit)),
    ]
    x = depth_axis(blocks)
    y = amount_axis("mean:Q", lens.unit, f"mean {lens.form.value}")
    base = alt.Chart(frame)
    if lens.form is Form.LEVEL:
        middle = base.mark_area(color=LEVEL, opacity=0.25).encode(
            x, alt.Y("low:Q"), alt.Y2("high"), tooltip=hints
        )  # fmt: skip
        line = base.mark_line(
            color=LEVEL, strokeWidth=2, point=alt.OverlayMarkDef(color=LEVEL, size=30, filled=True)
        ).encode(x, y, tooltip=hints)  # fmt: skip
        return alt.layer(middle, line, height=BAND, width=width)
    bars = base.mark_bar(opacity=0.75).encode(x, y, color=FILL, tooltip=hints)
    middle = base.mark_rule(color=QUIET, strokeWidth=2).encode(
        x, alt.Y("low:Q"), alt.Y2("high"), tooltip=hints
    )  # fmt: skip
    zero = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=QUIET).encode(alt.YDatum(0.0))
    return alt.layer(bars, middle, zero, height=BAND, width=width)


def panel(lens: LensSummary, blocks: int) -> alt.LayerChart:
    """One prompt's values of a lens, for a page that puts them in: rows of `depth`, `value`, `name`."""
    base = alt.Chart(alt.NamedData(name="rows"))
    hints = [
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("value:Q", title=lens.unit.value.capitalize(), format=digits(lens.unit)),
    ]
    x, y = depth_axis(blocks), amount_axis("value:Q", lens.unit, lens.unit.value)
    if lens.form is Form.LEVEL:
        point = alt.OverlayMarkDef(color=LEVEL, size=26, filled=True)
        drawn = base.mark_line(color=LEVEL, strokeWidth=2, point=point).encode(x, y, tooltip=hints)
    else:
        drawn = base.mark_bar(color=UP).encode(
            x, y, tooltip=hints, color=alt.Color("fill:N", scale=None, legend=None)
        )  # fmt: skip
    return alt.layer(drawn, height=150, width="container")
