"""XLSX: the first sheet as a table; its text as typed, its numbers as the workbook stores them."""

from __future__ import annotations

from dataclasses import replace

from lenses.errors import BadPromptFile
from lenses.prompts import columns
from lenses.prompts.columns import FIELDS, NO_HEADER, Columns, counted_rows
from lenses.prompts.found import Found
from lenses.prompts.marks import Fault, Figure
from lenses.prompts.rows import Manner, Row
from lenses.prompts.wording import counted, listed, shown
from lenses.prompts.workbook import first_sheet


def read_sheet(data: bytes, name: str, manner: Manner) -> Found:
    """The rows of a workbook's first sheet; its first row that is not empty names the columns."""
    sheet = first_sheet(data, name)
    if not sheet.rows:
        raise BadPromptFile(f"{name}: the first sheet, {shown(sheet.title)}, is empty: put the prompts there")
    width = max(len(cells) for _, cells in sheet.rows)
    header = manner.header is not False
    line, first = sheet.rows[0]
    below = sheet.rows[int(header) :]
    if not below:
        raise BadPromptFile(
            f"{name} has no rows below the header in sheet row {line}: write one for each prompt"
        )
    columns.few(width, name)
    if header:
        head = columns.named(_padded(first, width), manner, name, f"sheet row {line} names", NO_HEADER)
    else:
        head = columns.numbered(width, manner, name)
    rows = [_row(n, line, _padded(cells, width), head) for n, (line, cells) in counted_rows(below, name)]
    used = head.used(replace(manner, encoding=None, delimiter=None, header=header))
    notes = (*_of_others(sheet.title, sheet.others), *_of_figures(below))
    return Found("XLSX", used, head, rows, notes, header_line=line if header else None)


def _padded(cells: list[str], width: int) -> list[str]:
    return cells + [""] * (width - len(cells))


def _row(number: int, line: int, cells: list[str], head: Columns) -> Row:
    row = head.row(number, line, list(map(str, cells)), where="sheet row")
    for field, cell in zip(FIELDS[:2], head.fields([*cells, ""]), strict=False):
        if isinstance(cell, Fault) and not row.problem:
            mend = "open and save it in Excel" if cell.startswith("=") else "write a text"
            what = "formula without a value" if cell.startswith("=") else "error"
            return replace(
                row, problem=f"sheet row {line} has the {what} {shown(cell)} as its {field}: {mend}"
            )
    return row


def _of_others(title: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (f"only the first sheet, {shown(title)}, was read, not {listed(others)}",) if others else ()


def _of_figures(rows: list[tuple[int, list[str]]]) -> tuple[str, ...]:
    lines = [line for line, cells in rows for cell in cells if isinstance(cell, Figure)]
    if not lines:
        return ()
    return (
        f"{counted(len(lines), 'cell')} with numbers, dates or TRUE/FALSE (the first in sheet row "
        f"{lines[0]}) read as stored, 007 as 7; to keep what is typed, format the column as text and type "
        "it again",
    )
