"""Charts on a page, made once for each key: a rerun that changes nothing builds nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from lenses.ui.answers import jobs


def draw(
    key: Hashable, make: Callable[[], Any], *, name: str, alt: str, width: Any = "stretch", **more: Any
) -> Any:
    """The chart that `make` makes, as wide as its column or itself; `key` holds all it depends on."""

    def spec_of() -> dict[str, Any]:
        from lenses import charts

        return charts.spec(make())

    spec = jobs().results.recall(("chart", key), spec_of)
    return st.vega_lite_chart(spec=spec, width=width, key=name, alt=alt, **more)


def keep(key: Hashable, spec: dict[str, Any]) -> None:
    """Have a chart that was made before ready for `draw`."""
    jobs().results.put(("chart", key), spec)
