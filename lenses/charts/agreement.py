"""How alike the methods rank the depths: Spearman's correlation, every lens with every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from lenses import tables
from lenses.charts.style import DOWN, UP

if TYPE_CHECKING:
    from lenses.outcome import Comparison


def agreement(comparison: Comparison, *, width: int | str = "container") -> alt.LayerChart:
    """A square of rank correlations, −1 (reversed) to 1 (the same order)."""
    titles = {r.attribution.lens: r.title for r in comparison.results}
    return square(tables.agreement(comparison).rename(index=titles, columns=titles), titles, width=width)


def square(frame: pd.DataFrame, titles: dict[str, str], *, width: int | str = "container") -> alt.LayerChart:
    """Correlations by title, of one prompt or their means over a list; `titles` gives each lens's short
    name its title, in order."""
    order = list(titles.values())
    cells = frame.rename_axis("one").reset_index().melt("one", var_name="other", value_name="rank")
    cells["short"] = cells["other"].map({title: lens for lens, title in titles.items()})
    cells["shown"] = [f"{value:.2f}" if value == value else "n/a" for value in cells["rank"]]
    cells["ink"] = (cells["rank"].abs() > 0.6).map({True: "white", False: "#333"})
    axis = alt.Axis(
        labelAngle=0, labelLimit=170, labelFlush=False, ticks=False, domain=False, title=None
    )  # fmt: skip
    top = alt.Axis(
        orient="top", labelAngle=0, labelLimit=170, labelOverlap=False, labelFlush=False,
        ticks=False, domain=False, title=None,
    )  # fmt: skip
    base = alt.Chart(cells).encode(
        alt.X("short:N", sort=list(titles), axis=top),
        alt.Y("one:N", sort=order, axis=axis),
        tooltip=[
            alt.Tooltip("one:N", title="Method"),
            alt.Tooltip("other:N", title="with"),
            alt.Tooltip("shown:N", title="Spearman's ρ"),
        ],
    )  # fmt: skip
    scale = alt.Scale(domain=[-1, 0, 1], range=[DOWN, "#f4f4f6", UP], interpolate="rgb")
    return alt.layer(
        base.mark_rect(stroke="#80808040").encode(color=alt.Color("rank:Q", scale=scale, legend=None)),
        base.mark_text(fontSize=12).encode(
            text=alt.Text("shown:N"), color=alt.Color("ink:N", scale=None, legend=None)
        ),
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="independent")),
        height=alt.Step(40), width=width,
    )  # fmt: skip
