"""How often each method names the block that decides, on models in which it is known by construction."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from lenses.charts.style import PALE, UP

NONE = "–"
"""Where a method allows none of the models."""


def planted(
    scores: pd.DataFrame, titles: dict[str, str], *, width: int | str = "container"
) -> alt.LayerChart:
    """A row a method, a column a variant; `scores` are those of `grading.score`, `titles` by lens."""
    frame = scores.assign(
        title=[titles.get(lens, lens) for lens in scores["lens"]],
        shown=[NONE if hit != hit else f"{hit:.0%}" for hit in scores["hit"]],
        ink=(scores["hit"] > 0.6).map({True: "white", False: "#333"}),
    )  # fmt: skip
    hints = [
        alt.Tooltip("title:N", title="Method"),
        alt.Tooltip("variant:N", title="Variant"),
        alt.Tooltip("shown:N", title="Names a true block"),
        alt.Tooltip("distance:Q", title="Blocks off, on average", format=".1f"),
        alt.Tooltip("rank:Q", title="Mean place of the true blocks", format=".1f"),
        alt.Tooltip("models:Q", title="Models"),
    ]
    plain: dict[str, Any] = dict(ticks=False, domain=False, title=None, labelOverlap=False, labelFlush=False)
    top = alt.Axis(orient="top", labelAngle=-35, **plain)
    side = alt.Axis(labelLimit=190, **plain)
    base = alt.Chart(frame).encode(
        alt.X("variant:N", sort=list(dict.fromkeys(frame["variant"])), axis=top),
        alt.Y("title:N", sort=list(dict.fromkeys(frame["title"])), axis=side),
        tooltip=hints,
    )
    scale = alt.Scale(domain=[0, 1], range=[PALE, UP], interpolate="rgb")
    return alt.layer(
        base.mark_rect(stroke="#80808040").encode(color=alt.Color("hit:Q", scale=scale, legend=None)),
        base.mark_text(fontSize=12).encode(
            text=alt.Text("shown:N"), color=alt.Color("ink:N", scale=None, legend=None)
        ),
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="independent")),
        height=alt.Step(30), width=width,
    )  # fmt: skip
