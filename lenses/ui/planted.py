"""What the methods make of models in which the block that decides is known: measured once, and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from lenses import variants
from lenses.registry import LENSES
from lenses.ui.drawing import draw
from lenses.ui.text import escaped, small


def show(assets: Path) -> None:
    """The table of `assets/planted.csv`, how to read it, and what each variant is."""
    st.subheader("Where the truth is known", anchor=False)
    small(
        "In a real model nobody knows which block decided a word. Here small models were built in which it "
        "is known: one or two blocks hold the table of answers, all others write noise of the same size. How "
        "often is the block of a method's largest score one that decides?"
    )

    def chart() -> Any:
        from lenses import charts

        titles = {name: lens.title for name, lens in LENSES.items()} | variants.TITLES
        return charts.planted(variants.measured(assets), titles)

    left, right = st.columns([3, 2], gap="medium")
    with left:
        draw(("planted",), chart, name="planted", alt="How often each method names the block that decides")
    with right:
        told = "".join(
            f"<li><b>{escaped(name)}</b>: {escaped(what)}</li>" for name, what in variants.VARIANTS.items()
        )
        st.html(f'<ul class="ll-told">{told}</ul>')
        small(
            "In “hidden” no reading of the head can see the block that chooses the word: IG-Lens, the logit "
            "lens and DLA name the translator. A tuned lens is fitted to a model, and nobody fitted one here."
        )
