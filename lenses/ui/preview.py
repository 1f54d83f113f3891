"""A coarse picture of a map while the whole one is made."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.ui.drawing import draw
from lenses.ui.text import small

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap


def show(key: Hashable, found: DepthMap) -> None:
    """The map at the few depths that are read by now, as high as the whole one will be."""
    small(f"A coarse picture first: {len(found.depths)} of {found.model['blocks']} depths")
    tall = found.model["blocks"] / len(found.depths)

    def chart() -> Any:
        from lenses import charts

        return charts.heat(found, tall=tall, flipped=st.session_state.get("flipped", False))

    draw(
        ("preview", key, len(found.depths), st.session_state.get("flipped")), chart,
        name=f"preview-{hash(key)}-{len(found.depths)}", alt="a coarse map of the text", width="content",
    )  # fmt: skip
