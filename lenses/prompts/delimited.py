"""Tables of delimited text: CSV by any delimiter, found by which the first record has a prompt column."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from lenses.errors import BadPromptFile
from lenses.prompts import columns
from lenses.prompts.columns import NO_HEADER, Columns
from lenses.prompts.found import Found
from lenses.prompts.records import Record, Source
from lenses.prompts.rows import AS_FOUND, Manner, Row
from lenses.prompts.wording import counted

DELIMITERS = (",", ";", "\t", "|")
_EVEN = 20
"""Records that must have as many cells as the first, to tell a delimiter where no header does."""


def read_table(text: str, name: str, manner: Manner) -> Found:
    """The rows of a table; the first record that is not blank names the columns unless none does."""
    source = Source(text)
    delimiter = _delimiter(source, manner) if manner.delimiter is None else manner.delimiter
    first = source.first(delimiter)
    if first is None:
        raise BadPromptFile(f"{name} holds nothing but blank lines: write a line for each prompt")
    header = manner.header is not False
    head = _header(first, manner, name) if header else _numbered(source, delimiter, manner, name)
    found = islice(source.written(delimiter), int(header), None)
    rows = [_row(number, record, head, text) for number, record in columns.counted_rows(found, name)]
    if not rows:
        raise BadPromptFile(
            f"{name} has no rows below the header in line {first.line}: write one for each prompt"
        )
    used = head.used(replace(manner, delimiter=delimiter, header=header))
    return Found("CSV", used, head, rows, header_line=first.line if header else None)


def names_columns(text: str) -> bool:
    """Whether the first line has a cell named prompt beside others, so that it reads as a header."""
    source = Source(text)
    first = source.first(_delimiter(source, AS_FOUND))
    return first is not None and len(first.cells) > 1 and _sought(first, AS_FOUND)


def _delimiter(source: Source, manner: Manner) -> str:
    """The delimiter by which the first record names what is sought, with most columns; none for one."""

    def fits(delimiter: str) -> tuple[bool, int]:
        first = source.first(delimiter)
        if first is None:
            return True, columns.MOST_COLUMNS
        if manner.header is False:
            return True, _width(source, delimiter)
        return _sought(first, manner), len(first.cells)

    by_fit = {delimiter: fits(delimiter) for delimiter in DELIMITERS}
    best = max(DELIMITERS, key=by_fit.__getitem__)
    return best if by_fit[best][1] > 1 else ""


def _sought(first: Record, manner: Manner) -> bool:
    """Whether the record holds the name of every column that was chosen, or else of the prompts."""
    wanted = [name for name in (manner.prompt, manner.target) if name is not None] or ["prompt"]
    names = {columns.cleaned(cell).casefold() for cell in first.cells}
    return names >= {columns.cleaned(name).casefold() for name in wanted}


def _width(source: Source, delimiter: str) -> int:
    """How many cells the first records have, if all of them have as many; 1 where they differ."""
    widths = {len(r.cells) for r in islice(source.written(delimiter), _EVEN) if not r.problem}
    return widths.pop() if len(widths) == 1 else 1


def _header(first: Record, manner: Manner, name: str) -> Columns:
    """The columns that the first record names."""
    if first.problem:
        raise BadPromptFile(f"{name}: the header can't be read: {first.problem}")
    return columns.named(first.cells, manner, name, f"line {first.line} names", NO_HEADER)


def _numbered(source: Source, delimiter: str, manner: Manner, name: str) -> Columns:
    """As many columns as the first record has that can be read."""
    widths = (len(record.cells) for record in source.written(delimiter) if not record.problem)
    return columns.numbered(next(widths, 1), manner, name)


def _row(number: int, record: Record, head: Columns, text: str) -> Row:
    cells, width = record.cells, len(head.names)
    while len(cells) > width and not cells[-1]:
        cells.pop()
    problem = record.problem
    if not problem and not head.least <= len(cells) <= width:
        problem = _misfit(record, head)
    if problem:
        source = text[record.start : record.end].rstrip("\r\n")
        return head.broken(number, record.line, source, problem)
    return head.row(number, record.line, cells + [""] * (width - len(cells)))


def _misfit(record: Record, head: Columns) -> str:
    """What to do about a record with too many or too few cells."""
    last = record.line + record.lines - 1
    where = f"line {record.line} has" if record.lines == 1 else f"lines {record.line} to {last} make a row of"
    many = len(record.cells) > len(head.names)
    mend = (
        "put a text that holds the delimiter in quotes"
        if many
        else "write the delimiter for empty fields too"
    )
    return f"{where} {counted(len(record.cells), 'field')} and the header {len(head.names)}: {mend}"
