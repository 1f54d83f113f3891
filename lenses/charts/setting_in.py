"""Where an answer sets in, by every definition: a dot for each, and how far other choices move it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from lenses import depth_tables
from lenses.charts.style import LEVEL, MARK, QUIET, UP, depth_axis

if TYPE_CHECKING:
    from lenses.onsets import Onsets

ROW, APART = 38, 9
"""Pixels: of a definition's row, and of a range's line from the dot's."""
RANGES = {
    "depths": ("with fewer depths", UP, -APART),
    "baseline": ("from other baselines", LEVEL, APART),
}


def setting_in(found: Onsets, blocks: int, *, width: int | str = "container") -> alt.LayerChart:
    """A row a definition over the depths that all charts share: its depth, the range over chosen depths
    above it and the range over baselines below it."""
    frame = depth_tables.setting_in(found)
    rows = alt.Y(
        "title:N", sort=None, title=None,
        axis=alt.Axis(
            labelLimit=200, labelFlush=False, ticks=False, domain=False, grid=True, gridOpacity=0.5
        ),
    )  # fmt: skip
    hints = [
        alt.Tooltip("title:N", title="Definition"),
        alt.Tooltip("meaning:N", title="Meaning"),
        alt.Tooltip("at:N", title="Depth"),
        alt.Tooltip("by_depths:N", title="If fewer depths are read"),
        alt.Tooltip("by_baseline:N", title="From other baselines"),
    ]
    legend = alt.Legend(
        title=None, orient="bottom", direction="vertical", symbolType="stroke", labelLimit=400
    )
    scale = alt.Scale(domain=[text for text, *_ in RANGES.values()], range=[c for _, c, _ in RANGES.values()])
    layers = []
    for end, (text, _, apart) in RANGES.items():
        known = frame[frame[f"{end}_low"].notna()].assign(range=text)
        line = alt.Chart(known).mark_rule(strokeWidth=4, strokeCap="round", opacity=0.75, yOffset=apart)
        coloured = alt.Color("range:N", scale=scale, legend=legend)
        place = depth_axis(blocks, field=f"{end}_low:O")
        layers.append(line.encode(place, rows, x2=alt.X2(f"{end}_high"), color=coloured, tooltip=hints))
    there = alt.Chart(frame[frame["depth"].notna()])
    dots = there.mark_point(filled=True, size=90, color=MARK, opacity=1)
    layers.append(dots.encode(depth_axis(blocks), rows, tooltip=hints))
    for right, part in ((True, frame["depth"] <= blocks / 2), (False, frame["depth"] > blocks / 2)):
        number = alt.Chart(frame[part.fillna(False).astype(bool)]).mark_text(
            align="left" if right else "right", dx=8 if right else -8, color=MARK, fontSize=11,
            fontWeight="bold",
        )  # fmt: skip
        layers.append(number.encode(depth_axis(blocks), rows, text=alt.Text("at:N"), tooltip=hints))
    words = alt.Chart(frame[frame["depth"].isna()]).mark_text(align="left", dx=4, color=QUIET, fontSize=12)
    layers.append(words.encode(rows, x=alt.XValue(0), text=alt.Text("at:N"), tooltip=hints))
    return alt.layer(*layers, height=alt.Step(ROW), width=width)
