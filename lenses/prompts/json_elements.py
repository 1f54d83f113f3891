"""The elements of the one list that a JSON file holds, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import NamedTuple

from lenses.errors import BadPromptFile
from lenses.prompts.decoding import line_of
from lenses.prompts.json_values import Entry, Pairs, starting

_SPACE = re.compile(r"[ \t\n\r]*")


class Element(NamedTuple):
    start: int
    end: int
    value: Pairs | str | None


def elements(text: str, name: str) -> tuple[Iterator[Entry], list[str]]:
    """What the list holds, and the other keys of the object that it is in.

    Raises `BadPromptFile` with the line where the text is no JSON, or holds no list of prompts.
    """
    try:
        start = _skip(text, 0)
        if text.startswith("{", start):
            found, left_out, end = _within_object(text, start, name)
        elif text.startswith("[", start):
            (found, end), left_out = _list(text, start), []
        else:
            raise JSONDecodeError("expecting a list", text, start)
        if (after := _skip(text, end)) < len(text):
            raise JSONDecodeError("there is more after the end", text, after)
    except JSONDecodeError as error:
        line = line_of(text, error.pos)
        raise BadPromptFile(f"{name}, line {line}: not JSON ({error.msg}): correct the line") from error
    except RecursionError as error:
        raise BadPromptFile(f"{name} is nested too deeply: write a list of objects") from error
    if not found:
        raise BadPromptFile(f"{name} holds an empty list: write an object for each prompt")
    return _placed(text, found), left_out


def _within_object(text: str, start: int, name: str) -> tuple[list[Element], list[str], int]:
    """The elements of the list under `prompts`, the other keys, and where the object ends."""
    found: list[Element] | None = None
    left_out: list[str] = []
    at = _skip(text, start + 1)
    while not text.startswith("}", at):
        if not text.startswith('"', at):
            raise JSONDecodeError("expecting a key in quotes", text, at)
        key, end = starting(text, at)
        value = _skip(text, _expect(text, _skip(text, end), ":"))
        if key == "prompts" and found is None and text.startswith("[", value):
            found, end = _list(text, value)
        else:
            _, end = starting(text, value)
            left_out.append(str(key))
        at = _next(text, end, "}")
    if found is None:
        raise BadPromptFile(f"{name} holds one object without a list under prompts: write a list of objects")
    return found, left_out, at + 1


def _list(text: str, start: int) -> tuple[list[Element], int]:
    """The elements of the list that starts here, and where it ends."""
    found = []
    at = _skip(text, start + 1)
    while not text.startswith("]", at):
        value, end = starting(text, at)
        found.append(Element(at, end, value))
        at = _next(text, end, "]")
    return found, at + 1


def _next(text: str, end: int, closing: str) -> int:
    """Where the next element starts, or what closes them stands."""
    at = _skip(text, end)
    if text.startswith(closing, at):
        return at
    at = _skip(text, _expect(text, at, ","))
    if text.startswith(closing, at):
        raise JSONDecodeError("a comma before the end", text, at)
    return at


def _expect(text: str, at: int, character: str) -> int:
    """The position after a character that must stand here."""
    if not text.startswith(character, at):
        raise JSONDecodeError(f"expecting {character!r}", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    """The next position that is no space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _placed(text: str, found: list[Element]) -> Iterator[Entry]:
    line, seen = 1, 0
    for start, end, value in found:
        line += line_of(text[seen:start]) - 1
        seen = start
        yield Entry(line, text[start:end], value)
