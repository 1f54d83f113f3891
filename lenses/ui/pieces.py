"""A word of several tokens, piece by piece, below the cards: which of its tokens was decided where."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from lenses import charts
from lenses.tokens import visible
from lenses.ui.drawing import draw
from lenses.ui.text import small

if TYPE_CHECKING:
    from lenses.ui.answers import Answer


def show(answer: Answer) -> None:
    """One strip a method that says something of each piece; nothing for a word of one token."""
    found = answer.comparison
    told = [
        card
        for card in answer.cards
        if card.result is not None and card.result.attribution.pieces is not None
    ]
    if not told:
        return
    st.subheader("Piece by piece", anchor=False)
    small(
        f"The model writes ‘{visible(found.target_text)}’ in {len(found.pieces)} tokens, each after those "
        "before it. The whole word's probability is the product of theirs at every depth, and their "
        "logarithms add up to its logarithm."
    )
    columns = st.columns(len(told), gap="medium")
    for column, card in zip(columns, told, strict=True):
        if card.result is not None:
            with column:
                small(card.result.title)
                draw(
                    ("pieces", card.key), partial(charts.pieces, found, card.result),
                    name=f"pieces-{card.lens.name}",
                    alt=f"{card.result.title} of each piece of the word",
                )  # fmt: skip
