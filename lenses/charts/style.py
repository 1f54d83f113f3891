"""Colours and axes that all charts share: colour-blind-safe, and legible on light and dark."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt
import pandas as pd

from lenses.attribution import Form, Unit

UP, DOWN = "#3b7fc4", "#e08214"
"""Blue for what adds to the target, orange for what takes away."""
LEVEL, MARK, QUIET = "#8a6fc9", "#c2417f", "#8c8f9c"
"""Levels, the onset and what is marked, and lines that only help the eye."""
ATTENTION, MLP = "#009e73", "#cc79a7"
"""Green and purple of Okabe and Ito, apart from the two above also for the colour-blind."""
PALE = "#80808018"
"""A cell in which nothing happens, on light and on dark."""

SHORT = {
    Unit.BITS: "log₂ p (bits)", Unit.LOG_PROBABILITY: "log p", Unit.DIFFERENCE: "difference of p",
    Unit.SUMMED: "summed p", Unit.ENTROPY: "entropy (bits)", Unit.KL: "KL (bits)",
    Unit.DROP: "drop of p",
}  # fmt: skip
"""Units whose name is too long to stand beside an axis."""

FILL = alt.Color("fill:N", scale=None, legend=None)
"""Colours that stand in a column, made by `sign`: Altair takes far longer over conditions."""
EVERY = 5
"""Every which depth has its number on the axis."""


PERCENT = (Unit.PROBABILITY, Unit.SUMMED, Unit.DIFFERENCE, Unit.DROP)
"""Units that are told in percent."""


def sign(values: pd.Series) -> pd.Series:
    """The colour of each value: blue for what adds, orange for what takes away."""
    return (values >= 0).map({True: UP, False: DOWN})


@functools.cache
def depth_axis(blocks: int, title: str | None = "depth", field: str = "depth:O") -> alt.X:
    """The axis that all cards share: every depth from 0 (the embedding) to L."""
    step = EVERY if blocks > 2 * EVERY else 1
    marked = sorted({*range(0, blocks + 1, step), blocks} - ({blocks - 1} if step > 1 else set()))
    crowded = [d for d in marked if d != blocks and step > 1 and blocks - d < 3]
    return alt.X(
        field,
        title=title,
        scale=alt.Scale(domain=list(range(blocks + 1))),
        axis=alt.Axis(values=[d for d in marked if d not in crowded], labelAngle=0, ticks=False, grid=False),
    )


def amount_axis(field: str, unit: Unit, title: str, domain: list[float] | None = None) -> alt.Y:
    """The axis of values in their unit."""
    scale: Any = alt.Scale(domain=domain, nice=False) if domain else alt.Scale()
    return alt.Y(field, title=title, scale=scale, axis=alt.Axis(format=axis_format(unit), tickCount=5))


def short(unit: Unit) -> str:
    """The unit as it fits beside an axis."""
    return SHORT.get(unit, unit.value)


def value_scale(values: pd.Series, form: Form) -> alt.Scale:
    """The colours of cells: of two signs from orange over pale to blue; readings of one sign grow from
    their smallest, which is 0 for what can't be negative."""
    low, high = float(values.min()), float(values.max())
    if form is Form.LEVEL and low * high >= 0 and low < high:
        return alt.Scale(domain=[min(0.0, low), high], range=[PALE, LEVEL], interpolate="rgb")
    largest = max(abs(low), abs(high)) or 1.0
    return alt.Scale(domain=[-largest, 0, largest], range=[DOWN, PALE, UP], interpolate="rgb")


def axis_format(unit: Unit) -> str:
    """Percent for probabilities, their sums and differences; plain numbers for all else."""
    return "~%" if unit in PERCENT else ",~f"


def written(value: float, unit: Unit) -> str:
    """A number as a tooltip has it, where it has to be a text."""
    text = f"{100 * value:.3g}%" if unit.value == "probability" else f"{value:.4g}"
    return text.replace("-", "−")


def digits(unit: Unit) -> str:
    """The same for a tooltip, with as many digits as are stable."""
    return ".3~%" if axis_format(unit) == "~%" else ".4~g"
