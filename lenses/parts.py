"""The outcomes of a batch as a Parquet file, a *part* of a run: written whole or not at all.

A part's name is `window-session-…`: parts of a later session of a run come later in the order of names,
and of two entries for one row the later counts.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lenses import outcome
from lenses.errors import BadRun
from lenses.findings import NOT_RUN, Outcome
from lenses.prompts import Row

COLUMNS = pa.schema(
    [("row", pa.int64()), ("failure", pa.string()), ("passing", pa.bool_()), ("comparison", pa.string())]
)


def keep(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write a part."""
    table = pa.Table.from_pylist([_entry(one) for one in outcomes], schema=COLUMNS)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write(path, buffer.getvalue())


def of_window(folder: Path, number: int) -> dict[int, dict[str, Any]]:
    """What the parts in a folder hold of a window, by row."""
    tables = [table(path) for path in sorted(folder.glob(f"{number:06d}-*.parquet"))]
    return {entry["row"]: entry for one in tables for entry in one.to_pylist()}


def session(path: Path) -> int:
    """The session of a run in which a part was written."""
    return int(path.stem.split("-")[1])


def read(row: Row, entry: dict[str, Any] | None) -> Outcome:
    """The outcome of a row that has this entry; without one it says that it was not run."""
    if entry is None:
        return Outcome(row, failure=NOT_RUN)
    text = entry["comparison"]
    found = None if text is None else outcome.read(json.loads(text))
    return Outcome(row, found, entry["failure"], entry["passing"])


def table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A part's columns; raises `BadRun` for one that is damaged."""
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BadRun(
            f"{path} can't be read ({error}): delete it, and --resume computes its rows again"
        ) from error


def write(path: Path, data: bytes) -> None:
    """The whole file or none of it, also after a loss of power."""
    # Of its own name: a worker that was given up for dead may still be writing the same part.
    waiting = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with open(waiting, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(waiting, path)


def _entry(one: Outcome) -> dict[str, Any]:
    found = one.comparison
    text = None if found is None else json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False)
    return {"row": one.row.row, "failure": one.failure, "passing": one.passing, "comparison": text}
