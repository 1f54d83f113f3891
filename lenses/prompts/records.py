"""Text → records, by the csv module's strict rules; a broken quote costs one record, not the rest.

A quoted text keeps its line ends exactly. Where a quote is broken, reading goes on at the next line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

LONGEST = 50_000_000
"""Characters that one field may have: no more than a file."""


class Record(NamedTuple):
    """The cells of one record, on how many lines they stand, and where its source starts and ends."""

    line: int
    lines: int
    start: int
    end: int
    cells: list[str]
    problem: str = ""


class Source:
    """A text that can be read as records by one delimiter after another."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Lines end in \n, \r\n or \r and nothing else, and keep their ends.
        self.lines = io.StringIO(text, newline="")
        self._first: dict[str, Record | None] = {}

    @cached_property
    def absent(self) -> str:
        """A character that the text does not hold: by it, each line is one cell, and quotes still count."""
        return next((c for c in map(chr, range(0xFDD0, 0xFDF0)) if c not in self.text), "\ufdd0")

    def written(self, delimiter: str) -> Iterator[Record]:
        """The records that are not blank; with an empty delimiter each of them has one cell."""
        for record in records(self.lines, delimiter or self.absent):
            if record.problem or (any(record.cells) and not self._spaces(record)):
                yield record

    def first(self, delimiter: str) -> Record | None:
        """The first record that is not blank, if there is one."""
        if delimiter not in self._first:
            self._first[delimiter] = next(self.written(delimiter), None)
        return self._first[delimiter]

    def _spaces(self, record: Record) -> bool:
        """Whether the record is a line of nothing but spaces, which nobody put in quotes."""
        return len(record.cells) == 1 and not self.text[record.start : record.end].strip()


def records(lines: io.StringIO, delimiter: str) -> Iterator[Record]:
    """Every record of the lines, blank ones too; broken ones have a problem and no cells.

    No line is read more than three times: a quote that is open at the end of a line, and was seen to
    break later, breaks later also when it was opened in another line (`doomed`).
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    lines.seek(0)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line, doomed = 1, 0
    while True:
        start, before = lines.tell(), reader.line_num
        alone = line < doomed
        try:
            cells = next(
                csv.reader([lines.readline()], delimiter=delimiter, strict=True) if alone else reader
            )
        except StopIteration:
            return
        except csv.Error:
            doomed = doomed if alone else line + reader.line_num - before - 1
            lines.seek(start)
            lines.readline()
            count, cells, problem = 1, [], _broken(line)
        else:
            count, problem = 1 if alone else reader.line_num - before, ""
        yield Record(line, count, start, lines.tell(), cells, problem)
        line += count


def _broken(line: int) -> str:
    return (
        f"line {line} has a quoted text that does not end well: write each quote within it twice; the next "
        "line was read as a row of its own"
    )
