"""Which column is which: the names of a file → the fields of its rows, everything else kept as extra.

The four fields are found by name, whatever its case and the spaces around it; the prompt and the target
may be chosen to be others. What two columns could be is refused, not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import TypeVar

from lenses.errors import BadPromptFile
from lenses.prompts.rows import Manner, Row
from lenses.prompts.wording import listed, shown

FIELDS = ("prompt", "target", "id", "group")
MOST_COLUMNS = 256
MOST_ROWS = 1_000_000
NO_HEADER = ", or say that there is no header"

Item = TypeVar("Item")
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Columns:
    """The columns of a file: their names, where each field is, and which have no name of their own."""

    names: tuple[str, ...]
    places: dict[str, int]
    unnamed: frozenset[int] = frozenset()

    @cached_property
    def blank(self) -> dict[int, tuple[str, str]]:
        """What a row without text has in each extra column, by the column's place."""
        return {k: (name, "") for k, name in enumerate(self.names) if k not in self.places.values()}

    @cached_property
    def fields(self) -> Callable[[list[str]], tuple[str, ...]]:
        """What takes prompt, target, id and group out of a row's cells, of which one more is empty."""
        return itemgetter(*(self.places.get(field, len(self.names)) for field in FIELDS))

    @cached_property
    def least(self) -> int:
        """How many cells a row must have: those after the last column with a name may be left out."""
        return 1 + max(k for k in range(len(self.names)) if k not in self.unnamed)

    def used(self, manner: Manner) -> Manner:
        """`manner` with the names of the columns that hold prompts and targets."""
        target = self.places.get("target")
        return replace(
            manner,
            prompt=self.names[self.places["prompt"]],
            target=None if target is None else self.names[target],
        )

    def row(self, number: int, line: int, cells: Sequence[str], where: str = "line") -> Row:
        """The row that these cells make, one for each column; `where` says what `line` counts."""
        problem = ""
        whole = "".join(cells)
        if "\0" in whole:
            problem = f"{where} {line} holds a NUL byte: take it out, or choose the encoding of the file"
        elif not encodable(whole):
            problem = f"{where} {line} holds half of a character (a lone surrogate): write the whole one"
            cells = [spelled(cell) for cell in cells]
        elif not cells[self.places["prompt"]]:
            problem = f"{where} {line} has no prompt: write one or take the {where} out"
        prompt, target, id, group = self.fields([*cells, ""])
        extra = tuple([(empty[0], cells[k]) if cells[k] else empty for k, empty in self.blank.items()])
        return Row(number, line, prompt, target or None, id, group, extra, problem)

    def broken(self, number: int, line: int, source: str, problem: str) -> Row:
        """A row that could not be taken apart: its source stands for its prompt."""
        return Row(number, line, spelled(source), extra=tuple(self.blank.values()), problem=problem)

    def without_empty(self, rows: list[Row]) -> tuple[tuple[str, ...], list[Row]]:
        """The names and the rows without the columns that have neither name nor text."""
        extra = {k: place for place, k in enumerate(self.blank)}
        empty = {k for k in self.unnamed & extra.keys() if not any(row.extra[extra[k]][1] for row in rows)}
        if not empty:
            return self.names, rows
        places = [place for k, place in extra.items() if k not in empty]
        kept = [replace(row, extra=tuple(row.extra[place] for place in places)) for row in rows]
        return tuple(name for k, name in enumerate(self.names) if k not in empty), kept


def named(cells: Sequence[str], manner: Manner, name: str, at: str, or_else: str = "") -> Columns:
    """The columns that a header names; `at` begins the sentence about it, as in “line 1 names”.

    `or_else` ends the sentence about a file without prompts with what else might be done.

    Raises `BadPromptFile` where two columns are the same, or none is the prompt's or the one chosen.
    """
    few(len(cells), name)
    clean = [cleaned(cell) for cell in cells]
    unnamed = frozenset(k for k, cell in enumerate(clean) if not cell)
    names = tuple(cell or f"column {k}" for k, cell in enumerate(clean, start=1))
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        raise BadPromptFile(f"{name}: {at} {shown(twice[0])} twice; give each column a name of its own")
    places = _chosen(names, manner, name, at)
    for field in FIELDS:
        matching = [k for k, column in enumerate(names) if is_field(column, field)]
        if field in places or not (free := [k for k in matching if k not in places.values()]):
            continue
        if len(free) > 1:
            raise BadPromptFile(
                f"{name}: {at} {listed([names[k] for k in free])}, which all read as {field}; keep one"
            )
        places[field] = free[0]
    if "prompt" not in places:
        raise BadPromptFile(
            f"{name} has no column 'prompt': {at} {listed(names)}; rename one to prompt or choose the "
            f"column that holds the prompts{or_else}"
        )
    return Columns(names, places, unnamed)


def numbered(count: int, manner: Manner, name: str) -> Columns:
    """`count` columns without names: the first holds prompts and the second targets, or those chosen."""
    few(count, name)
    names = tuple(f"column {k}" for k in range(1, count + 1))
    places = _chosen(names, manner, name, "without a header there are")
    free = [k for k in range(count) if k not in places.values()]
    if "prompt" not in places:
        if not free:
            raise BadPromptFile(f"{name} has one column, which was chosen for targets: choose it for prompts")
        places["prompt"] = free.pop(0)
    if 1 in free:
        places.setdefault("target", 1)
    return Columns(names, places)


def few(count: int, name: str) -> None:
    """Raises `BadPromptFile` for more columns than a list is read with."""
    if count > MOST_COLUMNS:
        raise BadPromptFile(
            f"{name} has {count} columns; lists of at most {MOST_COLUMNS} are read: leave some out"
        )


def counted_rows(found: Iterable[Item], name: str) -> Iterator[tuple[int, Item]]:
    """What is found, counted from 1; raises `BadPromptFile` for more rows than a list is read with."""
    for number, item in enumerate(found, start=1):
        if number > MOST_ROWS:
            raise BadPromptFile(f"{name} has more than {MOST_ROWS:,} rows: split it")
        yield number, item


def cleaned(text: str) -> str:
    """A column's name without spaces and byte order marks around it."""
    return spelled(text.strip().strip("\ufeff").strip())


def is_field(name: str, field: str) -> bool:
    return cleaned(name).casefold() == field


def encodable(text: str) -> bool:
    """Whether this is text: a surrogate without its other half is none."""
    return text.isascii() or _HALF.search(text) is None


def spelled(text: str) -> str:
    """`text` with halves of characters as JSON writes them, `\\ud83d`."""
    return text.encode("utf-8", "backslashreplace").decode()


def _chosen(names: tuple[str, ...], manner: Manner, name: str, at: str) -> dict[str, int]:
    """Where the columns are that were chosen by name."""
    places: dict[str, int] = {}
    for field, wanted in (("prompt", manner.prompt), ("target", manner.target)):
        if wanted is None:
            continue
        exact = [k for k, column in enumerate(names) if column == cleaned(wanted)]
        alike = [k for k, column in enumerate(names) if column.casefold() == cleaned(wanted).casefold()]
        found = exact or alike
        if len(found) != 1:
            raise BadPromptFile(
                f"{name} has no column {shown(wanted)}: {at} {listed(names)}; choose one of them"
            )
        places[field] = found[0]
    if len(set(places.values())) < len(places):
        raise BadPromptFile(
            f"{shown(str(manner.prompt))} was chosen for prompts and targets: choose two columns"
        )
    return places
