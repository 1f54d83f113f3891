"""Parquet: a table's text as it is, its numbers and dates as Parquet stores them; null is no text."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lenses.errors import BadPromptFile
from lenses.prompts import columns
from lenses.prompts.columns import FIELDS, MOST_ROWS, Columns
from lenses.prompts.found import Found
from lenses.prompts.marks import Nested
from lenses.prompts.rows import Manner, Row
from lenses.prompts.wording import counted, listed

MOST_UNPACKED = 1_000_000_000
"""Bytes that a file may come to when it is unpacked."""
AT_ONCE = 256
"""Rows that are unpacked before their size is looked at."""


def read_parquet(data: bytes, name: str, manner: Manner) -> Found:
    """The rows of a Parquet file, whose `line` is their number.

    Raises `BadPromptFile` for a file that is damaged, or has no prompts, or too much of them.
    """
    try:
        table = _unpacked(pq.ParquetFile(io.BytesIO(data)), name)
        texts = [_texts(column) for column in table.columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise BadPromptFile(f"{name} can't be read as Parquet ({error}): write it again") from error
    head = columns.named(table.column_names, manner, name, "it names")
    rows = [_row(n, list(cells), head) for n, cells in enumerate(zip(*texts, strict=True), start=1)]
    if not rows:
        raise BadPromptFile(f"{name} has no rows: write one for each prompt")
    used = head.used(replace(manner, encoding=None, delimiter=None, header=None))
    return Found("Parquet", used, head, rows, _of_figures(table))


def _unpacked(file: pq.ParquetFile, name: str) -> pa.Table:
    """The table, read a little at a time: a text that all rows share takes no room in the file."""
    about = file.metadata
    if about.num_rows > MOST_ROWS:
        raise BadPromptFile(f"{name} has more than {MOST_ROWS:,} rows: split it")
    _refuse_large(sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups)), name)
    batches, size = [], 0
    for batch in file.iter_batches(AT_ONCE):
        size += batch.nbytes
        _refuse_large(size, name)
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _refuse_large(size: int, name: str) -> None:
    if size > MOST_UNPACKED:
        raise BadPromptFile(
            f"{name} comes to more than {MOST_UNPACKED / 1e6:.0f} MB when it is unpacked: split it"
        )


def _texts(column: pa.ChunkedArray) -> list[str]:
    return ["" if value is None else _text(value) for value in column.to_pylist()]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict | tuple | bytes):
        return Nested(json.dumps(value, ensure_ascii=False, default=str))
    return str(value)


def _row(number: int, cells: list[str], head: Columns) -> Row:
    row = head.row(number, number, list(map(str, cells)), where="row")
    for field, cell in zip(FIELDS[:2], head.fields([*cells, ""]), strict=False):
        if isinstance(cell, Nested) and not row.problem:
            return replace(row, problem=f"row {number} has a list or bytes as its {field}: write a text")
    return row


def _of_figures(table: pa.Table) -> tuple[str, ...]:
    """A note where a field that is text elsewhere is stored as something else."""
    fields = [f for f in table.schema if columns.cleaned(f.name).casefold() in FIELDS]
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary)
    others = [f.name for f in fields if not any(is_one(f.type) for is_one in texts)]
    if not others:
        return ()
    return (f"{counted(len(others), 'column')} not stored as text, read as stored: {listed(others)}",)
