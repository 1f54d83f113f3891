"""What each method measures and claims, from the registry, with one example worked by hand."""

from __future__ import annotations

import streamlit as st

from lenses.lens import fields
from lenses.registry import CLAIMS, LENSES
from lenses.ui.text import badge, escaped, small


def page() -> None:
    """Draws the page; a new lens in the registry is here by itself."""
    st.title("The methods", anchor=False)
    for lens in LENSES.values():
        with st.container(border=True, key=f"method-{lens.name}"):
            st.html(
                f'<div class="ll-title"><span>{escaped(lens.title)}</span>'
                f"{badge(CLAIMS[lens.claim], '#6f7480')}</div>"
            )
            st.write(lens.card.measures)
            st.latex(lens.card.formula)
            small(f"options: {[f.name for f in fields(lens)]}")
