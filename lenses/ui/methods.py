"""What each method measures and claims, from the registry, with one example worked by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import streamlit as st

from lenses.lens import fields
from lenses.registry import CLAIMS, LENSES
from lenses.ui.text import badge, escaped, small

HONEST = (
    "IG-Lens with its observed estimator is the first difference of the logit lens's probability. What it "
    "adds is the ledger: one account of the probability from the path's start to the model's own answer, "
    "which closes to the last bit. It measures what can be read out at a depth, not what causes the answer."
)
LESSON = (
    "Block 1 leaves the target's logit alone and raises the other word's, so DLA gives it 0, and the "
    "target's probability falls by 46 points all the same: IG-Lens books the fall, and its two shares "
    "(+23 and −46 points) sum to Δp = −23 points. DLA's parts sum to the logit, 1. Both add up, in units "
    "of their own."
)


def page() -> None:
    """Draws the page; a new lens in the registry is here by itself."""
    st.title("The methods", anchor=False)
    small(
        "Every method says what it claims adds up, and one judge checks it. Depth 0 is what enters the first "
        "block (the embedding), depth d what block d − 1 hands on, and the last depth what the final norm "
        "and head read."
    )
    for name in LENSES:
        with st.container(border=True, key=f"method-{name}"):
            _method(name)
    st.subheader("What IG-Lens is, and is not", anchor=False)
    st.write(HONEST)
    _example()


def _method(name: str) -> None:
    lens = LENSES[name]
    card = lens.card
    st.html(
        f'<div class="ll-title"><span>{escaped(lens.title)}</span>'
        f"{badge(CLAIMS[lens.claim], '#6f7480')}</div>"
    )
    st.write(card.measures)
    st.latex(card.formula)
    left, right = st.columns(2, gap="medium")
    with left:
        _said("What adds up, and why", card.adds_up)
        _said("Caveats", card.caveats)
    with right:
        _said("Cost", card.cost)
        _said("Source", lens.source)
    if fields(lens):
        with st.expander("Options"):
            st.dataframe([_option(f) for f in fields(lens)], hide_index=True, width="stretch")


def _said(head: str, text: str) -> None:
    st.html(f"<b>{escaped(head)}</b><br>{escaped(text)}")


def _option(f: dataclasses.Field[Any]) -> dict[str, str]:
    default = "left to the lens" if f.default is None else str(f.default)
    return {"option": f.name, "default": default, "what it does": f.metadata.get("help", "")}


def _example() -> None:
    from lenses.toy import worked

    st.subheader("Worked by hand", anchor=False)
    st.write(
        "A toy model with two words and two blocks, whose head reads the two logits straight from the "
        "residual, so that a level is eᵃ / (eᵃ + eᵇ):"
    )
    st.dataframe(worked(), hide_index=True, width="stretch", placeholder="–")
    st.write(LESSON)
