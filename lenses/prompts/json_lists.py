"""JSON and JSONL: an object or a text for each row; numbers are kept as the text that stands in the file.

A list, or an object with a list under `prompts`, is JSON; a line that is a value by itself starts JSONL.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from json import JSONDecodeError
from typing import NamedTuple

from lenses.errors import BadPromptFile
from lenses.prompts import columns
from lenses.prompts.columns import FIELDS, Columns, cleaned, counted_rows
from lenses.prompts.found import Found
from lenses.prompts.json_elements import elements
from lenses.prompts.json_values import Entry, Pairs, whole
from lenses.prompts.marks import Figure, Nested
from lenses.prompts.rows import Manner, Row
from lenses.prompts.wording import counted, listed, shown


def read_json(text: str, name: str, manner: Manner, by_line: bool) -> Found:
    """The rows of a JSON or JSONL text; `by_line` where its name says that it is JSONL.

    Raises `BadPromptFile` with the line for JSON that can't be read; a bad line of JSONL is a bad row.
    """
    if _is_jsonl(text, by_line):
        return _found("JSONL", _lines(text), name, manner)
    entries, left_out = elements(text, name)
    found = _found("JSON", entries, name, manner)
    if not left_out:
        return found
    note = f"only the list under prompts was read, not what is under {listed(left_out)}"
    return replace(found, notes=(note, *found.notes))


def _is_jsonl(text: str, by_line: bool) -> bool:
    """Whether the first line is a row by itself; a file named JSONL may also begin with a bad one."""
    if not by_line and text.lstrip().startswith("["):
        return False
    first = next(_lines(text), None)
    if first is None:
        return True
    if first.problem:
        return by_line and not first.source.lstrip().startswith("[")
    if isinstance(first.value, Pairs):
        return not any(key == "prompts" and isinstance(value, Nested) for key, value in first.value)
    return True


def _lines(text: str) -> Iterator[Entry]:
    """The value of each line that is not blank."""
    for line, ended in enumerate(io.StringIO(text, newline=""), start=1):
        source = ended.rstrip("\r\n").lstrip("\ufeff")
        if not source.strip():
            continue
        try:
            yield Entry(line, source, whole(source))
        except JSONDecodeError as error:
            reason = f"{error.msg} at character {error.pos + 1}"
            yield Entry(line, source, problem=f"line {line} is not JSON ({reason}): write one object a line")
        except RecursionError:
            yield Entry(line, source, problem=f"line {line} is nested too deeply: write one object a line")


class _Read(NamedTuple):
    """One row before the columns of all are known: its values by key, or what is wrong with it."""

    line: int
    values: dict[str, str]
    problem: str
    source: str


def _found(kind: str, entries: Iterable[Entry], name: str, manner: Manner) -> Found:
    """A row for each entry; the columns are the keys of all, in the order in which they appear."""
    read, spellings = _gathered(entries, name, manner.prompt or "prompt")
    if not read:
        raise BadPromptFile(f"{name} holds nothing but blank lines: write a line for each prompt")
    keys = list(spellings) or ["prompt"]
    head = columns.named([spellings.get(key, key) for key in keys], manner, name, "its rows name")
    rows, figures = [], []
    for number, (line, values, problem, source) in enumerate(read, start=1):
        if problem:
            rows.append(head.broken(number, line, source, problem))
            continue
        cells = [values.get(key, "") for key in keys]
        rows.append(_row(number, line, cells, head))
        figures += [line for cell in head.fields([*cells, ""]) if isinstance(cell, Figure)]
    used = head.used(replace(manner, delimiter=None, header=None))
    return Found(kind, used, head, rows, _of_figures(figures))


def _gathered(entries: Iterable[Entry], name: str, bare: str) -> tuple[list[_Read], dict[str, str]]:
    """The rows, and each key as it was first spelled; a text by itself is under the key `bare`."""
    read: list[_Read] = []
    spellings: dict[str, str] = {}
    for _, entry in counted_rows(entries, name):
        pairs, problem = _pairs(entry, bare)
        values = {_identity(key): value or "" for key, value in pairs}
        if len(values) < len(pairs):
            values, problem = {}, _twice(entry.line, pairs)
        if not values.keys() <= spellings.keys():
            spellings |= {_identity(k): cleaned(k) for k, _ in pairs if _identity(k) not in spellings}
            columns.few(len(spellings), name)
        read.append(_Read(entry.line, values, problem, entry.source if problem else ""))
    return read, spellings


def _pairs(entry: Entry, bare: str) -> tuple[list[tuple[str, str | None]], str]:
    """The keys and values of an entry, a text by itself being a prompt; or none, and what is wrong."""
    value, line = entry.value, entry.line
    if entry.problem:
        return [], entry.problem
    if isinstance(value, Pairs):
        return value, ""
    if value is None or isinstance(value, Figure | Nested):
        return [], f"line {line} holds {shown(entry.source)} for a row: write an object or a text in quotes"
    return [(bare, value)], ""


def _twice(line: int, pairs: list[tuple[str, str | None]]) -> str:
    """What is wrong with an object that has two values for one column."""
    counts = Counter(_identity(key) for key, _ in pairs)
    return f"line {line} has the key {shown(counts.most_common(1)[0][0])} twice: write each key once"


def _row(number: int, line: int, cells: list[str], head: Columns) -> Row:
    row = head.row(number, line, list(map(str, cells)))
    for field, cell in zip(FIELDS[:2], head.fields([*cells, ""]), strict=False):
        if isinstance(cell, Nested) and not row.problem:
            return replace(row, problem=f"line {line} has a list or an object as its {field}: write a text")
    return row


@lru_cache(maxsize=1024)
def _identity(key: str) -> str:
    """The field that a key stands for however it is spelled, or the key."""
    name = cleaned(key)
    return name.casefold() if name.casefold() in FIELDS else name


def _of_figures(lines: list[int]) -> tuple[str, ...]:
    if not lines:
        return ()
    return (
        f"{counted(len(lines), 'value')} without quotes (a number, true or false; the first in line "
        f"{lines[0]}) read as the very text of the file",
    )
