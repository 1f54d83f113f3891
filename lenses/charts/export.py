"""A chart as a picture, made on this machine: nothing is fetched and nothing is sent."""

from __future__ import annotations

import re
import threading
from typing import Any, Literal

import altair as alt

WIDTH = 640
"""Pixels of a chart whose width is that of its page."""

_registry = threading.Lock()  # Altair has one for all threads

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": "#333", "titleColor": "#333", "gridColor": "#e6e6ea", "domainColor": "#999"},
}


_UNDRAWABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML, and so no SVG, may hold: the renderer would end the whole process."""


def spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as Vega-Lite, with its data in it, however many rows they have.

    Altair's check against the schema is left to the tests: it takes longer than all the rest.
    """
    with _registry, alt.data_transformers.enable("default", max_rows=None):
        made: dict[str, Any] = chart.to_dict(validate=False)
    return made


def save(chart: alt.TopLevelMixin, format: Literal["png", "svg"], title: str = "") -> bytes:
    """The chart as a PNG (twice the size, for print) or an SVG, with `title` above it."""
    import vl_convert

    drawn = spec(chart)
    if drawn.get("width") == "container":
        drawn["width"] = WIDTH
    drawn = _drawable(drawn)
    if title:
        title = _UNDRAWABLE.sub("\ufffd", title)
        drawn["title"] = {"text": title, "anchor": "start", "fontSize": 13, "limit": 2 * WIDTH, "offset": 12}
    drawn["config"] = {**drawn.get("config", {}), **CONFIG}
    if format == "svg":
        svg: str = vl_convert.vegalite_to_svg(drawn, allowed_base_urls=[])
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(drawn, scale=2, allowed_base_urls=[])
    return png


def _drawable(part: Any) -> Any:
    """The same specification with a mark for every character that can't be drawn."""
    if isinstance(part, dict):
        return {key: _drawable(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_drawable(value) for value in part]
    return _UNDRAWABLE.sub("\ufffd", part) if isinstance(part, str) else part
