"""A workbook's bytes → the cells of its first sheet as text; openpyxl reads, and is not trusted.

Archives that are damaged, locked or far larger than they look are refused in one sentence.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from openpyxl.reader.excel import ExcelReader
from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS
from openpyxl.xml.functions import iterparse

from lenses import shortage
from lenses.errors import BadPromptFile
from lenses.prompts.marks import Fault, Figure

MOST_UNPACKED = 500_000_000
MOST_SHEET_ROWS = 1_048_576
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_FORMULA = re.compile(rb"<(\w+:)?f[\s/>]")
_IN = f"{{{SHEET_MAIN_NS}}}"


@dataclass(frozen=True)
class Sheet:
    """The first sheet: its rows that are not empty, each with its number, and the other sheets' names."""

    title: str
    others: tuple[str, ...]
    rows: list[tuple[int, list[str]]]


def first_sheet(data: bytes, name: str) -> Sheet:
    """The first sheet of a workbook; raises `BadPromptFile` for what is none, or can't be read."""
    with _refusing(name):
        formulas = _checked(data, name)
        computed = _open(data, values=True)
        # A formula without a stored value would look like an empty cell: the second reading tells them.
        entered = _open(data, values=False) if formulas else None
        title, *others = [sheet.title for sheet in computed.worksheets]
        rows = []
        for number, cells in enumerate(_rows(computed, entered), start=1):
            if number > MOST_SHEET_ROWS:
                raise BadPromptFile(f"{name} has a row beyond the last of a sheet: save it again")
            while cells and not cells[-1]:
                cells.pop()
            if cells:
                rows.append((number, cells))
        return Sheet(title, tuple(others), rows)


class _Reader(ExcelReader):
    """openpyxl's reader, but for the shared strings, of which it would drop every `x005F_`."""

    def read_strings(self) -> None:
        part = next((p for p in self.package.Override if p.ContentType == SHARED_STRINGS), None)
        if part is None:
            return
        with self.archive.open(part.PartName[1:]) as source:
            for _, node in iterparse(source):
                if node.tag == f"{_IN}si":
                    texts = [*node.iterfind(f"{_IN}t"), *node.iterfind(f"{_IN}r/{_IN}t")]
                    self.shared_strings.append("".join(t.text or "" for t in texts))
                    node.clear()


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Whatever zipfile, the XML parser or openpyxl raise for a damaged file becomes one sentence."""
    try:
        yield
    except BadPromptFile:
        raise
    except Exception as error:
        raise shortage.no_room(error, name, "save it as CSV") or BadPromptFile(
            f"{name} is damaged or no workbook that can be read: save it again as .xlsx"
        ) from error


def _checked(data: bytes, name: str) -> bool:
    """Whether the workbook holds formulas; raises `BadPromptFile` before anything is unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        if not any(part.filename.startswith("xl/workbook") for part in parts):
            raise BadPromptFile(f"{name} is a ZIP archive without a workbook: give the list that is in it")
        if any(part.flag_bits & 1 for part in parts):
            raise BadPromptFile(f"{name} is locked by a password: save it without one")
        if (size := sum(part.file_size for part in parts)) > MOST_UNPACKED:
            raise BadPromptFile(f"{name} unpacks to {size // 1_000_000} MB, more than is read: split it")
        sheets = [part for part in parts if part.filename.startswith("xl/worksheets/")]
        return any(_FORMULA.search(archive.read(part)) for part in sheets)


def _open(data: bytes, values: bool) -> Any:
    reader = _Reader(io.BytesIO(data), read_only=True, data_only=values, keep_links=False)
    reader.read()
    return reader.wb


def _rows(computed: Any, entered: Any) -> Iterator[list[str]]:
    """Every row of the first sheet, empty ones too."""
    if entered is None:
        yield from ([_text(cell) for cell in row] for row in _cells(computed))
        return
    for row, formulas in zip(_cells(computed), _cells(entered), strict=True):
        yield [
            _formula(f) if cell.value is None and f.data_type == "f" else _text(cell)
            for cell, f in zip(row, formulas, strict=True)
        ]


def _cells(workbook: Any) -> Iterator[tuple[Any, ...]]:
    sheet = workbook.worksheets[0]
    # The size that a file states for its sheet may be wrong, and would cut it.
    sheet.reset_dimensions()
    return sheet.iter_rows()


def _formula(cell: Any) -> Fault:
    written = getattr(cell.value, "text", cell.value)
    return Fault(written if isinstance(written, str) else "=")


def _text(cell: Any) -> str:
    """What a cell holds as text: typed text exactly, numbers in their shortest form, dates as ISO."""
    value = cell.value
    if value is None:
        return ""
    if cell.data_type == "e":
        return Fault(value)
    if isinstance(value, str):
        return _ESCAPE.sub(_unescaped, value)
    if isinstance(value, bool):
        return Figure(str(value).upper())
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return Figure(value.date().isoformat())
    if isinstance(value, datetime.date | datetime.time):
        return Figure(value.isoformat())
    return Figure(str(value).removesuffix(".0"))


def _unescaped(match: re.Match[str]) -> str:
    """The character that Excel writes as `_xHHHH_`; halves of characters are no escapes."""
    code = int(match[1], 16)
    return match[0] if 0xD800 <= code <= 0xDFFF else chr(code)
