"""Charts in a page that opens offline: each a picture, and a specification for those who can run it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from markupsafe import Markup

from lenses import charts

WIDE, HALF = 1000, 470
"""Pixels of a chart across the page, and of one of two side by side."""


@dataclass(frozen=True)
class Figure:
    """A chart as a picture, and as a specification for those who can run it."""

    name: str
    title: str
    alt: str
    picture: str
    spec: Markup


def figure(
    name: str, title: str, alt: str, make: Callable[..., Any], width: int,
    format: Literal["svg", "png"] = "svg",
) -> Figure:  # fmt: skip
    """The figure of what `make` makes of a `width`; as PNG where an SVG would be of thousands of marks."""
    spec = charts.spec(make(width="container"))
    picture = base64.b64encode(charts.save(make(width=width), format)).decode()
    kind = {"svg": "svg+xml", "png": "png"}[format]
    return Figure(name, title, alt, f"data:image/{kind};base64,{picture}", data(spec))


def data(value: Any) -> Markup:
    """JSON that can stand inside a script element: no character of it can end that."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def engine() -> Markup:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    import vl_convert

    return Markup(
        vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    )
