"""How well methods rank the blocks, held against skipping them: intervals, every block, every prompt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
import pandas as pd

from lenses.charts.style import DOWN, EVERY, LEVEL, MARK, PALE, QUIET, UP
from lenses.tokens import visible

if TYPE_CHECKING:
    from lenses.validation import Scores

LINE, SCATTER, RECALL = 17, 340, 440
"""Pixels of one interval's line, and the heights of a scatter and, its legend included, of the curves."""
TALL, LOW, ROOM = 16, 2, 520
"""Pixels of a prompt's row in a heatmap, at most and at least, and what all of them have together."""
COLOURS = (UP, DOWN, LEVEL, MARK, QUIET)
SHOWN = 90
"""Characters of a prompt in a tooltip."""
NAMES = {
    "all": {"blocks": "all blocks", "subset": "all targets"},
    "without-first-two": {"blocks": "without the first two"},
}
"""What results are called in a legend, where not by their own name."""
PICK = "pick"
"""The name of the selection of a prompt; its field is `row`."""


def forest(
    rows: pd.DataFrame, by: str, *, lines: str = "title", measure: str = "spearman",
    width: int | str = "container",
) -> alt.LayerChart:  # fmt: skip
    """The mean correlation of each of `lines` with its 95 % interval, one for each value of `by`.

    `rows` are those of a `Validation` that are to be shown, in their order.
    """
    frame = pd.DataFrame(
        {
            "line": rows[lines], "by": [NAMES.get(name, {}).get(by, name) for name in rows[by]],
            "value": rows[measure], "prompts": rows["prompts"],
            "low": rows[f"{measure}_low"], "high": rows[f"{measure}_high"],
        }
    ).dropna(subset=["value"])  # fmt: skip
    kinds = list(dict.fromkeys(frame["by"]))
    place = {name: k for k, name in enumerate(kinds)}
    frame["slot"] = frame["by"].map(place)
    frame["fill"] = [COLOURS[place[name] % len(COLOURS)] for name in frame["by"]]
    hints = [
        alt.Tooltip("line:N", title="Of"),
        alt.Tooltip("by:N", title="With"),
        alt.Tooltip("value:Q", title="Mean", format=".3f"),
        alt.Tooltip("low:Q", title="95 % from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("prompts:Q", title="Prompts"),
    ]
    y = alt.Y("line:N", sort=None, title=None, axis=alt.Axis(labelLimit=190, ticks=False, domain=False))
    x = alt.X("value:Q", title="rank correlation of scores and drops", axis=alt.Axis(tickCount=5))
    legend = alt.Legend(title=None, orient="top", symbolType="circle", columns=1)
    colour = alt.Color("by:N", scale=alt.Scale(range=[*COLOURS]), sort=None, legend=legend)
    base = alt.Chart(frame).encode(y, alt.YOffset("slot:O"), color=colour, tooltip=hints)
    spans = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high"))
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(x)
    zero = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=QUIET, strokeDash=[3, 3])
    step = alt.Step(LINE, **{"for": "offset"})
    return alt.layer(zero.encode(alt.XDatum(0.0)), spans, dots, height=step, width=width)


def scatter(scores: Scores, lens: str, *, width: int | str = "container") -> alt.LayerChart:
    """Every block of every prompt: what the lens says it gave across, what skipping it costs up.

    The blocks of the prompt under the pointer are joined and stand out; a click keeps them. Scores stand
    on a scale that is even near 0 and logarithmic beyond, since most are small.
    """
    values = scores.values[list(scores.titles).index(lens)]
    frame = _long(scores, score=values).dropna()
    frame = frame.round({"score": 5, "drop": 5})
    # Not the nearest dot: Vega-Lite then has no texts in its tooltip.
    hover = alt.selection_point(name=PICK, fields=["row"], on="pointerover", empty=False, clear="pointerout")
    kept = alt.selection_point(name="kept", fields=["row"], on="click", empty=False)
    hints = [*_prompt_hints(), alt.Tooltip("score:Q", title="Score", format=".4~g"),
             alt.Tooltip("drop:Q", title="Drop of p", format=".3~%")]  # fmt: skip
    base = alt.Chart(frame).transform_lookup(
        "row", alt.LookupData(_prompts(scores), "row", ["prompt", "target", "group"])
    )
    scale, axis = _wide(values)
    x = alt.X("score:Q", title=f"score by {scores.titles[lens]}", scale=scale, axis=axis)
    y = alt.Y("drop:Q", title="drop of p when skipped", axis=alt.Axis(format="~%", tickCount=5))
    chosen = hover | kept
    dots = base.mark_circle().encode(
        x, y, tooltip=hints,
        color=alt.condition(chosen, alt.value(MARK), alt.value(UP)),
        opacity=alt.condition(chosen, alt.value(1), alt.value(0.28)),
        size=alt.condition(chosen, alt.value(80), alt.value(34)),
    ).add_params(hover, kept)  # fmt: skip
    joined = base.transform_filter(chosen)
    line = joined.mark_line(color=MARK, strokeWidth=1, opacity=0.45).encode(
        x, y, detail="row:N", order="block:Q"
    )  # fmt: skip
    return alt.layer(line, dots, height=SCATTER, width=width)


def blocks_map(scores: Scores, lens: str | None = None, *, width: int | str = "container") -> alt.Chart:
    """A row a prompt, a column a block: what skipping it costs, or what a lens says that it gave.

    Colours end at the 99th percentile of sizes, so that a few large values do not pale all others.
    """
    values = scores.drops if lens is None else scores.values[list(scores.titles).index(lens)]
    frame = _long(scores, value=values).dropna(subset=["value"]).round({"value": 5, "drop": 5})
    sizes = np.abs(values[np.isfinite(values)])
    largest = (float(np.quantile(sizes, 0.99)) if sizes.size else 0.0) or 1.0
    scale = alt.Scale(
        domain=[-largest, 0, largest], range=[DOWN, PALE, UP], interpolate="rgb", clamp=True
    )  # fmt: skip
    format = "~%" if lens is None else ".2~g"
    title = "drop of p" if lens is None else "score"
    blocks, prompts = values.shape[1], len(scores.prompts)
    step = float(np.clip(ROOM // max(1, prompts), LOW, TALL))
    marked = [block for block in range(blocks) if block % EVERY == 0 or blocks <= 2 * EVERY]
    x = alt.X("block:O", title="block", axis=alt.Axis(values=marked, labelAngle=0, ticks=False))
    y = alt.Y("row:O", title=f"{prompts} prompts", axis=alt.Axis(labels=False, ticks=False, domain=False))
    legend = alt.Legend(title=title, format=format, orient="top", gradientLength=180)
    hints = [*_prompt_hints(), alt.Tooltip("value:Q", title=title.capitalize(), format=".3~g")]
    return alt.Chart(frame).transform_lookup(
        "row", alt.LookupData(_prompts(scores), "row", ["prompt", "target", "group"])
    ).mark_rect().encode(
        x, y, color=alt.Color("value:Q", scale=scale, legend=legend), tooltip=hints
    ).properties(height=alt.Step(step), width=width)  # fmt: skip


def recall(curves: pd.DataFrame, titles: dict[str, str], *, width: int | str = "container") -> alt.Chart:
    """Precision against recall of the blocks that matter, as more of the highest scores are taken."""
    frame = curves.dropna().assign(title=lambda lines: lines["lens"].map(titles))
    hints = [
        alt.Tooltip("title:N", title="Method"),
        alt.Tooltip("highest:Q", title="Highest scores taken"),
        alt.Tooltip("precision:Q", title="Of them matter", format=".0%"),
        alt.Tooltip("recall:Q", title="Of all that matter", format=".0%"),
    ]
    legend = alt.Legend(title=None, orient="top", columns=1, labelLimit=200)
    colour = alt.Color("title:N", scale=alt.Scale(range=[*COLOURS, "#009e73"]), sort=None, legend=legend)
    axis = alt.Axis(format="~%", tickCount=5)
    return alt.Chart(frame).mark_line(point=alt.OverlayMarkDef(size=24), strokeWidth=1.5).encode(
        alt.X("recall:Q", title="of all blocks that matter", axis=axis),
        alt.Y("precision:Q", title="of those taken, matter", axis=axis, scale=alt.Scale(zero=False)),
        color=colour, order="highest:Q", tooltip=hints,
    ).properties(height=RECALL, width=width)  # fmt: skip


def _wide(values: np.ndarray) -> tuple[alt.Scale, alt.Axis]:
    """A scale that shows the middle score as well as the largest, and its axis."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    largest, middle = (float(sizes.max()), float(np.median(sizes))) if sizes.size else (1.0, 1.0)
    middle = max(middle, largest / 1e4)
    first, last = math.ceil(math.log10(middle)), math.floor(math.log10(largest))
    powers = [10.0**k for k in range(first, last + 1)]
    marked = [*(-one for one in reversed(powers)), 0.0, *powers]
    return alt.Scale(type="symlog", constant=middle), alt.Axis(values=marked, format="~g", labelOverlap=True)


def _long(scores: Scores, **values: np.ndarray) -> pd.DataFrame:
    """One line a prompt and block."""
    prompts, blocks = scores.drops.shape
    rows = np.repeat(scores.prompts["row"].to_numpy(), blocks)
    frame = pd.DataFrame({"row": rows, "block": np.tile(np.arange(blocks), prompts)})
    return frame.assign(drop=scores.drops.ravel(), **{name: each.ravel() for name, each in values.items()})


def _prompts(scores: Scores) -> pd.DataFrame:
    """What a tooltip says of a prompt."""
    frame = scores.prompts[["row", "prompt", "target", "group"]].copy()
    frame["prompt"] = [visible(t if len(t) <= SHOWN else f"…{t[-SHOWN:]}") for t in frame["prompt"]]
    return frame.assign(target=frame["target"].map(visible))


def _prompt_hints() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("row:Q", title="Row"),
        alt.Tooltip("prompt:N", title="Prompt"),
        alt.Tooltip("target:N", title="Word"),
        alt.Tooltip("group:N", title="Group"),
        alt.Tooltip("block:Q", title="Block"),
    ]
