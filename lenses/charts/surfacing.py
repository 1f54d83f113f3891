"""What rose and fell on the way: tokens by their best depth, and the largest changes of each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from lenses import depth_tables
from lenses.charts.style import FILL, LEVEL, MARK, PALE, depth_axis, sign

if TYPE_CHECKING:
    from lenses.surfacing import Moves, Peak

STRIP, BAR, NAME = 22, 20, 84
"""Pixels of a token's row in either chart, and of its name beside a strip."""
INK = "#7d8190"
"""Names that are legible on light and on dark."""


def peaks(
    found: Sequence[Peak], target: int | None = None, *, width: int | str = "container"
) -> alt.LayerChart:
    """A strip a token over all depths, its colour the probability; the best depth has a ring, and the
    name of the `target` stands out.

    Rows stand by `order`, since two tokens may look alike.
    """
    frame = depth_tables.peaks(found)
    blocks = int(frame["depth"].max())
    frame["ink"] = [MARK if found[order].id == target else INK for order in frame["order"]]
    hints = [
        alt.Tooltip("token:N", title="Token"),
        alt.Tooltip("depth:O", title="Depth"),
        alt.Tooltip("name:N", title="Which is"),
        alt.Tooltip("probability:Q", title="Probability", format=".3~%"),
        alt.Tooltip("best:O", title="Likeliest at depth"),
        alt.Tooltip("most:Q", title="where it has", format=".3~%"),
    ]
    rows = alt.Y("order:O", title=None, axis=None)
    scale = alt.Scale(domain=[0, 1], range=[PALE, LEVEL], interpolate="rgb")
    legend = alt.Legend(title="probability", format="~%", orient="top", gradientLength=160)
    cells = alt.Chart(frame).mark_rect(stroke="#80808020").encode(
        depth_axis(blocks), rows, tooltip=hints,
        color=alt.Color("probability:Q", scale=scale, legend=legend),
    )  # fmt: skip
    best = alt.Chart(frame[frame["depth"] == frame["best"]])
    marks = best.mark_point(size=48, color=MARK, strokeWidth=2, filled=False).encode(
        alt.X("depth:O"), rows, tooltip=hints
    )  # fmt: skip
    names = best.mark_text(align="right", dx=-8, fontSize=12, limit=NAME).encode(
        rows, x=alt.XValue(0), text=alt.Text("token:N"), tooltip=hints,
        color=alt.Color("ink:N", scale=None, legend=None),
    )  # fmt: skip
    drawn = alt.layer(cells, marks, names, height=alt.Step(STRIP), width=width)
    return drawn.resolve_scale(color="independent").properties(
        padding={"left": NAME + 8, "top": 5, "right": 5, "bottom": 5}
    )


def movers(found: Moves, *, width: int | str = "container") -> alt.LayerChart:
    """The tokens that gained and that lost most in one block, by at least 0.05 points of probability."""
    frame = depth_tables.movers([found])
    frame = frame[frame["change"].abs() >= depth_tables.LEAST].reset_index(drop=True)
    frame["points"], frame["order"] = 100 * frame["change"], range(len(frame))
    frame["fill"] = sign(frame["change"])
    frame["said"] = [f"{points:+.1f}".replace("-", "−") for points in frame["points"]]
    hints = [
        alt.Tooltip("token:N", title="Token"),
        alt.Tooltip("before:Q", title="Before the block", format=".3~%"),
        alt.Tooltip("after:Q", title="After it", format=".3~%"),
        alt.Tooltip("said:N", title="Change (points)"),
    ]
    largest = max(1.0, float(frame["points"].abs().max())) * 1.25 if len(frame) else 1.0
    rows = alt.Y("order:O", title=None, axis=None)
    x = alt.X(
        "points:Q", title="change of probability, points", scale=alt.Scale(domain=[-largest, largest]),
        axis=alt.Axis(tickCount=5),
    )  # fmt: skip
    base = alt.Chart(frame)
    bars = base.mark_bar().encode(x, rows, color=FILL, tooltip=hints)
    up, down = (alt.Chart(frame[frame["change"] > 0]), alt.Chart(frame[frame["change"] < 0]))
    amounts = [
        part.mark_text(align=side, dx=dx, fontSize=11, color=INK).encode(x, rows, text="said:N")
        for part, side, dx in ((up, "left", 4), (down, "right", -4))
    ]
    names = [
        part.mark_text(align=side, dx=dx, fontSize=12, color=INK).encode(
            rows, x=alt.XDatum(0), text=alt.Text("token:N"), tooltip=hints
        )
        for part, side, dx in ((up, "right", -6), (down, "left", 6))
    ]
    return alt.layer(bars, *amounts, *names, height=alt.Step(BAR), width=width)
