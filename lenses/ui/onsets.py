"""Where an answer sets in, by every definition: the picture, what each means, and when none means much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from lenses import charts
from lenses.onset import DEFINITIONS
from lenses.receipt import span
from lenses.ui.drawing import draw
from lenses.ui.text import escaped, message, small

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lenses.onsets import Onset, Onsets

INTRO = (
    "There is no one onset: seven definitions are in use, and they ask different things. A dot is the depth "
    "by one of them, read at every depth from the embedding on; a line is how far that depth moves if only "
    "every 2nd, 3rd or 5th depth is read, or from the mean and zero baselines. Short lines: trust it."
)


def setting_in(found: Onsets, blocks: int, key: Hashable) -> None:
    """Draws the section; `key` holds the question."""
    st.subheader("Where does it set in?", anchor=False)
    small(INTRO)
    for warning in found.warnings:
        message("warning", warning)
    left, right = st.columns([3, 2], gap="medium", vertical_alignment="center")
    with left:
        draw(
            ("setting-in", key), lambda: charts.setting_in(found, blocks), name="setting-in",
            alt="The onset depth by each of seven definitions, with the range over other choices",
        )  # fmt: skip
    with right:
        st.html(f'<div class="ll-meaning">{"".join(map(_said, found.definitions))}</div>')


def _said(one: Onset) -> str:
    """HTML of a definition: its name and depth, what it means, and what moves it."""
    what = DEFINITIONS[one.name]
    at = "never" if one.depth is None else f"depth {one.depth}"
    ranges = f"fewer depths: {span(one.depths_low, one.depths_high)}"
    if what.baseline:
        ranges += f"; other baselines: {span(one.baseline_low, one.baseline_high)}"
    else:
        ranges += "; no baseline in it"
    return (
        f"<div><b>{escaped(what.title)}</b> <i>{escaped(at)}</i><br>"
        f"{escaped(what.meaning)} <span>({escaped(ranges)})</span></div>"
    )
