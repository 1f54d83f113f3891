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
    import pandas as pd

    from lenses.question import Question
    from lenses.surfacing import Moves, Peak
    from lenses.ui.models import Held

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
ALL = -1  # an option of None would be shown as no choice at all


def surfacing(held: Held, asked: Question, key: Hashable) -> None:
    """Draws the section, closed at first; the vocabulary is read when it is opened."""
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
            _movers(moves, key)


def _found(held: Held, asked: Question, key: Hashable) -> tuple[tuple[Moves, ...], tuple[Peak, ...]]:
    from lenses import surfacing

    def make() -> tuple[tuple[Moves, ...], tuple[Peak, ...]]:
        with quickly():
            given = held.decoder, asked.trace, asked.target.position
            return surfacing.movers(*given), surfacing.peaks(*given)

    found: tuple[tuple[Moves, ...], tuple[Peak, ...]] = jobs().results.recall(("surfacing", key), make)
    return found


def _movers(moves: Sequence[Moves], key: Hashable) -> None:
    """The blocks that moved most, or one block's tokens."""
    most = sorted(moves, key=lambda one: -one.moved)[:MOST]
    chosen: int = st.selectbox(
        "Block", [ALL, *range(len(moves))], key="mover", persist_state="session",
        format_func=lambda block: f"the {len(most)} that moved most" if block == ALL else f"block {block}",
    )  # fmt: skip
    if chosen == ALL or chosen >= len(moves):
        st.dataframe(_table(most), hide_index=True, width="stretch", height="content")
        return
    one = moves[chosen]
    small(f"Block {chosen}, from depth {chosen} to {chosen + 1}, moved {one.moved:.1%} of all probability.")
    draw(
        ("movers", key, chosen), lambda: charts.movers(one), name="movers",
        alt=f"The tokens that gained and lost most in block {chosen}",
    )  # fmt: skip


def _table(most: Sequence[Moves]) -> pd.DataFrame:
    return depth_tables.blocks(most).rename(
        columns={"block": "Block", "moved": "Moved", "rose": "Rose (points)", "fell": "Fell (points)"}
    )
