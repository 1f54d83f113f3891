"""The ledger as a waterfall: from where the path starts to the model's own value, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from lenses import tables
from lenses.charts.style import DOWN, QUIET, UP, axis_format, digits, short

if TYPE_CHECKING:
    from lenses.attribution import Unit
    from lenses.outcome import Result

KINDS = alt.Scale(domain=["start", "up", "down", "end"], range=["#6f7480", UP, DOWN, "#6f7480"])


def ledger(result: Result, *, fold: float = 0.0, width: int | str = "container") -> alt.LayerChart:
    """A lens that claims a sum across depths, as one account; small steps below `fold` × the largest
    are put together."""
    frame = tables.ledger(result, fold)
    labels = frame["label"].tolist()
    frame["next"] = [*labels[1:], labels[-1]]
    return _waterfall(alt.Chart(frame), alt.Chart(frame.iloc[:-1]), labels, result.attribution.unit, width)


def ledger_panel(unit: Unit) -> alt.LayerChart:
    """The same for a page that puts in the rows, in order: `label`, `name`, `low`, `high`, `change`,
    `kind` and `next`."""
    base = alt.Chart(alt.NamedData(name="rows"))
    steps = base.transform_filter("datum.kind != 'end'")
    return _waterfall(base, steps, None, unit, "container")


def _waterfall(
    every: alt.Chart, but_last: alt.Chart, order: list[str] | None, unit: Unit, width: int | str
) -> alt.LayerChart:
    x = alt.X(
        "label:N", sort=order, title="depth (start and end are levels)",
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False),
        scale=alt.Scale(paddingInner=0.25),
    )  # fmt: skip
    y = alt.Y("low:Q", title=short(unit), axis=alt.Axis(format=axis_format(unit), tickCount=5))
    hints = [
        alt.Tooltip("label:N", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("change:Q", title="Change", format=digits(unit)),
        alt.Tooltip("high:Q", title="Level after", format=digits(unit)),
    ]
    bars = every.mark_bar(minBandSize=2).encode(
        x, y, y2=alt.Y2("high"), tooltip=hints,
        color=alt.Color("kind:N", scale=KINDS, legend=None),
    )  # fmt: skip
    steps = but_last.mark_rule(color=QUIET, strokeWidth=1).encode(
        x, x2=alt.X2("next"), y=alt.Y("high:Q")
    )  # fmt: skip
    return alt.layer(steps, bars, height=260, width=width)
