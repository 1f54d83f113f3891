"""JSON values as text: strings as they are, numbers as they stand in the file, the rest as JSON."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from lenses.prompts.marks import Figure, Nested


class Pairs(list[tuple[str, Any]]):
    """The keys and values of an object in their order, also those that come twice."""


class Entry(NamedTuple):
    """What stands where a row should: `value` once it is known, or `problem`; `source` as written."""

    line: int
    source: str
    value: Pairs | str | None = None
    problem: str = ""


_DECODER = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Figure, parse_float=Figure, parse_constant=Figure
)


def whole(text: str) -> Pairs | str | None:
    """The one value of a text; raises `JSONDecodeError`, or `RecursionError` where it is too deep."""
    return flat(_DECODER.decode(text))


def starting(text: str, at: int) -> tuple[Pairs | str | None, int]:
    """The value that starts at a position, and where it ends; raises as `whole`."""
    value, end = _DECODER.raw_decode(text, at)
    return flat(value), end


def flat(value: Any) -> Pairs | str | None:
    """An object with its values as text, or a value as text; null is None."""
    if isinstance(value, Pairs):
        return Pairs([(key, each if type(each) is str else _text(each)) for key, each in value])
    return _text(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return Figure(written(value)) if isinstance(value, bool) else Nested(written(value))


def written(value: Any) -> str:
    """The JSON of a value, its numbers as they stood in the file."""
    if isinstance(value, Figure):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{written(key)}: {written(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
