"""The folder of a run: what was asked (`run.json`), and what came of it so far, batch by batch (`parts/`).

Law: a run that was stopped at any moment, also by force, goes on with the rows that are missing and no
others; with another list, model or lens it does not go on at all.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from lenses import outcome
from lenses.batch import Outcomes, window
from lenses.comparison import describe, versions
from lenses.decoder import Decoder
from lenses.errors import BadRun
from lenses.findings import NOT_RUN, Outcome
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import PromptList, Row

SCHEMA = "lenses.run/1"
COLUMNS = pa.schema(
    [("row", pa.int64()), ("failure", pa.string()), ("passing", pa.bool_()), ("comparison", pa.string())]
)


def settings(decoder: Decoder, listed: PromptList, lenses: Sequence[Lens]) -> dict[str, Any]:
    """All that the numbers of a run depend on, as `run.json` holds it."""
    model = describe(decoder, decoder.readout_gap)
    return {
        "schema": SCHEMA,
        "file": {
            "name": listed.name,
            "sha256": listed.sha256,
            "rows": len(listed.rows),
            "described": listed.described(),
        },
        "read as": dataclasses.asdict(listed.manner),
        "model": {name: model[name] for name in ("name", "source", "revision", "dtype")},
        "lenses": {lens.name: json.loads(json.dumps(lens.options)) for lens in lenses},
        "software": {"lenses": versions()["lenses"]},
    }


class Store:
    """A run's folder, held by one process at a time: use it as a context manager."""

    def __init__(self, folder: Path, settings: dict[str, Any], rows: Sequence[Row]) -> None:
        self.folder, self.settings, self.rows = folder, settings, rows
        self._lock = filelock.FileLock(folder / ".lock", timeout=0, thread_local=False)

    def __enter__(self) -> Store:
        self._parts.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise BadRun(
                f"another process is writing into {self.folder}: wait for it, or choose another folder"
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def begin(self, resume: bool) -> frozenset[int]:
        """The rows that are done already: none in a new folder, and none that failed by a passing fault.

        Raises `BadRun` for a folder that holds a run unless `resume` is given, and for one that was
        started with other settings, which are named.
        """
        for leftover in self._parts.glob("*.tmp"):
            leftover.unlink()
        known = self._known()
        if known is None and any(self._parts.glob("*.parquet")):
            raise BadRun(
                f"{self.folder} holds parts of a run whose run.json is gone, so that nobody knows what they "
                "are: choose another folder"
            )
        if known is None:
            _write(self.folder / "run.json", json.dumps(self.settings, ensure_ascii=False, indent=1).encode())
            return frozenset()
        if not resume:
            raise BadRun(
                f"{self.folder} already holds a run of {known['file']['name']}: add --resume to go on with "
                "it, or choose another folder"
            )
        if differences := list(_differences(known, self.settings)):
            raise BadRun(
                f"{self.folder} holds a run that can't be gone on with, because "
                f"{'; '.join(differences)}: choose another folder"
            )
        parts = [_table(path, ["row", "passing"]) for path in self._parts.glob("*.parquet")]
        return frozenset(one["row"] for part in parts for one in part.to_pylist() if not one["passing"])

    def keep(self, outcomes: Outcomes) -> None:
        """Add the outcomes of one batch, all of one window, as a part of their own."""
        table = pa.Table.from_pylist([_entry(one) for one in outcomes], schema=COLUMNS)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        number = window(outcomes[0].row.row)
        there = [int(path.stem.partition("-")[2]) for path in self._parts.glob(f"{number:06d}-*.parquet")]
        free = 1 + max(there, default=-1)  # not their count: one of them may have been deleted
        _write(self._parts / f"{number:06d}-{free:06d}.parquet", buffer.getvalue())

    def recorded(self, steps: Iterable[Progress | Outcomes]) -> Iterator[Progress]:
        """The progress of a run whose outcomes are kept as they come."""
        for step in steps:
            if isinstance(step, Progress):
                yield step
            else:
                self.keep(step)

    def outcomes(self) -> Iterator[Outcome]:
        """The outcome of every row in the list's order; one that is missing says that it was not run."""
        for number, group in groupby(self.rows, key=lambda row: window(row.row)):
            known = self._window(number)
            for row in group:
                yield _outcome(row, known.get(row.row))

    def one(self, row: int) -> Outcome:
        """The outcome of one row."""
        return _outcome(self.rows[row - 1], self._window(window(row)).get(row))

    def _window(self, number: int) -> dict[int, dict[str, Any]]:
        """What was kept of a window, by row."""
        tables = [_table(path) for path in sorted(self._parts.glob(f"{number:06d}-*.parquet"))]
        return {entry["row"]: entry for table in tables for entry in table.to_pylist()}

    @property
    def _parts(self) -> Path:
        return self.folder / "parts"

    def _known(self) -> dict[str, Any] | None:
        path = self.folder / "run.json"
        if not path.exists():
            return None
        try:
            known: dict[str, Any] = json.loads(path.read_bytes())
            if known["schema"] != SCHEMA:
                raise ValueError(f"its schema is {known['schema']!r}")
            if not all(isinstance(known[name], dict) for name in ("file", "read as", "model", "lenses")):
                raise ValueError("its settings are damaged")
            str(known["file"]["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadRun(f"{path} can't be read ({error}): choose another folder") from error
        return known


def _entry(one: Outcome) -> dict[str, Any]:
    found = one.comparison
    text = None if found is None else json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False)
    return {"row": one.row.row, "failure": one.failure, "passing": one.passing, "comparison": text}


def _outcome(row: Row, entry: dict[str, Any] | None) -> Outcome:
    if entry is None:
        return Outcome(row, failure=NOT_RUN)
    text = entry["comparison"]
    found = None if text is None else outcome.read(json.loads(text))
    return Outcome(row, found, entry["failure"], entry["passing"])


def _table(path: Path, columns: list[str] | None = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BadRun(
            f"{path} can't be read ({error}): delete it, and --resume computes its rows again"
        ) from error


def _write(path: Path, data: bytes) -> None:
    """The whole file or none of it, also after a loss of power."""
    waiting = path.with_suffix(".tmp")
    with open(waiting, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(waiting, path)


def _differences(known: dict[str, Any], asked: dict[str, Any], where: str = "") -> Iterator[str]:
    """What differs, in words; the name of a file does not matter where its content is the same."""
    for key in sorted({*known, *asked}):
        name, old, new = f"{where}{key}", known.get(key), asked.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name} ")
        elif old != new and name != "file name":
            yield f"its {name} is {_said(old)}, not {_said(new)}"


def _said(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
