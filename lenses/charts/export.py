"""A chart as a picture, made on this machine: nothing is fetched and nothing is sent."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt

WIDTH = 640
"""Pixels of a chart whose width is that of its page."""

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": "#333", "titleColor": "#333", "gridColor": "#e6e6ea", "domainColor": "#999"},
}


def save(chart: alt.TopLevelMixin, format: Literal["png", "svg"], title: str = "") -> bytes:
    """The chart as a PNG (twice the size, for print) or an SVG, with `title` above it."""
    import vl_convert

    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.to_dict()
    if spec.get("width") == "container":
        spec["width"] = WIDTH
    if title:
        spec["title"] = {"text": title, "anchor": "start", "fontSize": 13, "limit": 2 * WIDTH, "offset": 12}
    spec["config"] = {**spec.get("config", {}), **CONFIG}
    if format == "svg":
        svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
    return png
