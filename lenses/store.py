"""The folder of a run: what was asked (`run.json`), and what came of it so far, batch by batch (`parts/`).

Law: a run that was stopped at any moment, also by force, goes on with the rows that are missing and no
others; with another list, model or lens it does not go on at all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import filelock
import numpy as np
from jaxtyping import Int
from numpy import ndarray

from lenses import parts
from lenses.batch import Outcomes, window
from lenses.comparison import describe, versions
from lenses.decoder import Decoder
from lenses.errors import BadRun
from lenses.findings import Outcome
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import Manner, PromptList, Row

SCHEMA = "lenses.run/1"


def settings(decoder: Decoder, listed: PromptList, lenses: Sequence[Lens]) -> dict[str, Any]:
    """All that the numbers of a run depend on, as `run.json` holds it."""
    return asked(describe(decoder, decoder.readout_gap), about(listed), listed.manner, lenses)


def about(listed: PromptList) -> dict[str, Any]:
    """What `settings` say of a list."""
    return {
        "name": listed.name, "sha256": listed.sha256, "rows": len(listed.rows),
        "described": listed.described(),
    }  # fmt: skip


def asked(
    model: dict[str, Any], file: dict[str, Any], manner: Manner, lenses: Sequence[Lens]
) -> dict[str, Any]:
    """`settings` of a model as `comparison.describe` tells it, and of a list as `about` does."""
    return {
        "schema": SCHEMA,
        **listing(file, manner),
        "model": {name: model[name] for name in ("name", "source", "revision", "dtype")},
        "lenses": {lens.name: json.loads(json.dumps(lens.options)) for lens in lenses},
        "software": {"lenses": versions()["lenses"]},
    }


def listing(file: dict[str, Any], manner: Manner) -> dict[str, Any]:
    """The part of them that is of the list alone."""
    return {"file": file, "read as": dataclasses.asdict(manner)}


class Store:
    """A run's folder, held by one process at a time: use it as a context manager."""

    def __init__(self, folder: Path, settings: dict[str, Any], rows: Sequence[Row]) -> None:
        self.folder, self.settings, self.rows = folder, settings, rows
        self._lock = filelock.FileLock(folder / ".lock", timeout=0, thread_local=False)

    def __enter__(self) -> Store:
        self.parts.mkdir(parents=True, exist_ok=True)
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

        Raises `BadRun` as `opened`.
        """
        if not self.opened(resume):
            return frozenset()
        return frozenset(self.done().tolist())

    def done(self) -> Int[ndarray, " row"]:
        """The rows, sorted, whose outcomes are in the parts, but for failures that may end otherwise."""
        kept = [parts.table(path, ["row", "passing"]).to_pydict() for path in self.parts.glob("*.parquet")]
        lasting = [np.array(one["row"])[~np.array(one["passing"], dtype=bool)] for one in kept]
        return np.unique(np.concatenate([np.array([], dtype=np.int64), *lasting]))

    def opened(self, resume: bool) -> bool:
        """Whether the folder holds this very run, to be gone on with; if not, it is begun.

        Raises `BadRun` as `taken`, and for a run that was started with other settings, which are named.
        """
        known = self.taken(resume)
        if known is None:
            text = json.dumps(self.settings, ensure_ascii=False, indent=1)
            parts.write(self.folder / "run.json", text.encode())
            return False
        if differences := list(_differences(known, self.settings)):
            raise BadRun(
                f"{self.folder} holds a run that can't be gone on with, because "
                f"{'; '.join(differences)}: choose another folder"
            )
        return True

    def taken(self, resume: bool) -> dict[str, Any] | None:
        """The settings of the run that the folder holds, if it holds one.

        Raises `BadRun` where it holds one and `resume` is not given, or one that nobody knows.
        """
        for leftover in self.parts.glob("*.tmp"):
            leftover.unlink()
        known = self._known()
        if known is None and any(self.parts.glob("*.parquet")):
            raise BadRun(
                f"{self.folder} holds parts of a run whose run.json is gone, so that nobody knows what they "
                "are: choose another folder"
            )
        if known is not None and not resume:
            raise BadRun(
                f"{self.folder} already holds a run of {known['file']['name']}: add --resume to go on with "
                "it, or choose another folder"
            )
        return known

    def keep(self, outcomes: Outcomes) -> None:
        """Add the outcomes of one batch, all of one window, as a part of their own."""
        number = window(outcomes[0].row.row)
        free = self.free(f"{number:06d}-")
        parts.keep(self.parts / f"{number:06d}-{free:06d}.parquet", outcomes)

    def free(self, start: str = "") -> int:
        """A session later than that of every part whose name starts so."""
        # Not their count: one of them may have been deleted.
        return 1 + max(map(parts.session, self.parts.glob(f"{start}*.parquet")), default=-1)

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
            known = parts.of_window(self.parts, number)
            for row in group:
                yield parts.read(row, known.get(row.row))

    def one(self, row: int) -> Outcome:
        """The outcome of one row."""
        return parts.read(self.rows[row - 1], parts.of_window(self.parts, window(row)).get(row))

    @property
    def parts(self) -> Path:
        """The folder of the parts."""
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
