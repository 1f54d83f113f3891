"""A list of prompts as values: its rows, how it was read, and what a reader should know."""

from __future__ import annotations

from dataclasses import dataclass

from lenses.prompts.wording import MOST, counted, plain

_ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with BOM",
    "utf-16": "UTF-16 with BOM",
    "utf-16-le": "UTF-16 LE",
    "utf-16-be": "UTF-16 BE",
    "utf-32": "UTF-32 with BOM",
    "cp1252": "Windows-1252",
}
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", "": "one column"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list, its text exactly as typed; a text that is empty is missing.

    `row` counts the rows from 1, bad ones too, blank lines not; `line` is the line of the file, or the
    row of the sheet, where the row starts. `extra` holds the file's other columns in their order.
    `problem` is one sentence that says why the row can't be run, and empty where it can; a row that
    could not be taken apart has its source as its `prompt`.
    """

    row: int
    line: int
    prompt: str
    target: str | None = None
    id: str = ""
    group: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Manner:
    """How a file is to be read, or was read; what is None is to be found out, or does not apply.

    `encoding` is a name of Python's codecs; `delimiter` one character, or empty for one column;
    `header` tells whether the first record names the columns; `prompt` and `target` are the names of
    the columns that hold them, `column 1` and so on without a header.
    """

    encoding: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    prompt: str | None = None
    target: str | None = None


AS_FOUND = Manner()


@dataclass(frozen=True)
class PromptList:
    """The rows of a file named `name`, whose bytes have the digest `sha256`.

    `kind` is CSV (with any delimiter), TXT, JSONL, JSON, XLSX or Parquet. Reading the same bytes in `manner`
    gives the same rows. `columns` are the file's own; `notes` are sentences for people. `header_line`
    is the line that names the columns, None where none does.
    """

    name: str
    sha256: str
    kind: str
    manner: Manner
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    header_line: int | None = None

    @property
    def good(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.problem)

    @property
    def bad(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem)

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The names in each row's `extra`, in the file's order."""
        return tuple(name for row in self.rows[:1] for name, _ in row.extra)

    def described(self) -> str:
        """One line for people: how the file was read, and how many of its rows can't be run."""
        parts = [self.kind, *self._read_as()]
        if self.manner.header is False and self.columns:
            parts.append(counted(len(self.columns), "column"))
        elif self.columns:
            names = ", ".join(map(plain, self.columns[:MOST]))
            more = f" and {len(self.columns) - MOST} more" if len(self.columns) > MOST else ""
            parts.append(("column " if len(self.columns) == 1 else "columns ") + names + more)
        bad = f", {len(self.bad)} of them can't be run" if self.bad else ""
        return f"{', '.join(parts)}: {counted(len(self.rows), 'row')}{bad}"

    def _read_as(self) -> list[str]:
        manner, parts = self.manner, []
        if manner.encoding is not None:
            parts.append(_ENCODINGS.get(manner.encoding, manner.encoding))
        if self.kind == "TXT":
            return [*parts, "one prompt a line"]
        if manner.delimiter is not None:
            parts.append(_DELIMITERS.get(manner.delimiter, f"delimiter {manner.delimiter!r}"))
        if self.header_line is not None:
            where = "row" if self.kind == "XLSX" else "line"
            return [*parts, f"header in {where} {self.header_line}"]
        return [*parts, "no header"] if manner.header is False else parts
