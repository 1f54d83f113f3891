"""What rose and fell: tokens by their best depth, and what each block gave to and took from which."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from lenses import charts, depth_tables
from lenses.errors import LensesError
from lenses.ui.answers import jobs, quickly
from lenses.ui.drawing import draw
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.question import Question
    from lenses.surfacing import Moves, Peak
    from lenses.ui.shelf import Held

PEAKS = (
    "The tokens that are likeliest at any depth, not only in the end: what the model was about to say on the "
    "way. A ring marks each token's best depth."
)
MOVERS = (
    "What each block gave to which token and took from which, over the whole vocabulary. A block moves 100 % "
    "when nothing stays where it was."
)
MOST = 8
"""Blocks in the table of those that moved most."""
HEADS = {"block": "Block", "moved": "Moved", "rose": "Rose (points)", "fell": "Fell (points)"}


def surfacing(held: Held, asked: Question, step: int | None, key: Hashable) -> None:
    """Draws the section, closed at first; the vocabulary is read when it is opened.

    `step` is the depth of the word's largest share, whose block is shown first.
    """
    section = st.expander(
        "What rose and fell? The whole vocabulary", key="surfacing", on_change="rerun"
    )  # fmt: skip
    if not section.open:
        return
    with section:
        try:
            moves, peaks = _found(held, asked, key)
        except LensesError as error:
            message("error", str(error))
            return
        left, right = st.columns([3, 2], gap="medium")
        with left:
            small(PEAKS)
            draw(
                ("peaks", key), lambda: charts.peaks(peaks, asked.target.token), name="peaks",
                alt="The likeliest tokens, a strip each over all depths",
            )  # fmt: skip
        with right:
            small(MOVERS)
            _block(moves, (step or 1) - 1, key)
        most = sorted(moves, key=lambda one: -one.moved)[:MOST]
        small(f"The {len(most)} blocks that moved most, whatever the word:")
        frame = depth_tables.blocks(most).rename(columns=HEADS)
        st.dataframe(frame, hide_index=True, width="stretch", height="content")


def _found(held: Held, asked: Question, key: Hashable) -> tuple[tuple[Moves, ...], tuple[Peak, ...]]:
    from lenses import surfacing

    def make() -> tuple[tuple[Moves, ...], tuple[Peak, ...]]:
        with quickly():
            given = held.decoder, asked.trace, asked.target.position
            return surfacing.movers(*given), surfacing.peaks(*given)

    found: tuple[tuple[Moves, ...], tuple[Peak, ...]] = jobs().results.recall(("surfacing", key), make)
    return found


def _block(moves: Sequence[Moves], first: int, key: Hashable) -> None:
    """The tokens that moved in one block: at first in the word's own, then in the one that is chosen."""
    if st.session_state.get("block_for") != key:
        st.session_state["block_for"], st.session_state["block"] = key, first
    chosen: int = st.selectbox(
        "Block", range(len(moves)), key="block", persist_state="session",
        format_func=lambda block: f"block {block}, {moves[block].moved:.0%} moved",
    )  # fmt: skip
    draw(
        ("movers", key, chosen), lambda: charts.movers(moves[chosen]), name="movers",
        alt=f"The tokens that gained and lost most in block {chosen}",
    )  # fmt: skip
