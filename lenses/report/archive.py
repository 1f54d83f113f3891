"""`report.json`: everything that a report says, to be opened again as if it had just been computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import numpy as np
import pandas as pd

from lenses import aggregates, outcome
from lenses.errors import BadRun
from lenses.findings import NOT_RUN, Findings, Outcome, gathered
from lenses.outcome import number
from lenses.prompts import Row

SCHEMA = "lenses.report/1"


@dataclass(frozen=True)
class Archived:
    """A run out of a `report.json`."""

    settings: dict[str, Any]
    data: dict[str, Any]

    def outcomes(self) -> Iterator[Outcome]:
        """The outcome of every row in the list's order."""
        comparisons = iter(self.data["comparisons"])
        reasons = {entry["row"]: entry for entry in self.data["failures"]}
        for entry in self.data["summary"]["rows"]:
            failed = reasons.get(entry["row"])
            found = failed or next(comparisons)
            row = Row(
                entry["row"], entry["line"], found["prompt"], entry["target"], entry["id"], entry["group"],
                tuple(entry["extra"].items()),
            )  # fmt: skip
            yield Outcome(row, failure=failed["reason"]) if failed else Outcome(row, outcome.read(found))

    def one(self, row: int) -> Outcome:
        """The outcome of one row."""
        return next(one for one in self.outcomes() if one.row.row == row)


def read(data: bytes, name: str = "report.json") -> Archived:
    """The run of a `report.json`; raises `BadRun` for what is none."""
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ValueError(f"it is no {SCHEMA} object")
        run = Archived(found["provenance"]["settings"], found)
        asked = {"name", "sha256", "rows", "described"} - set(run.settings["file"])
        if asked or not {"lenses", "read as", "model"} <= set(run.settings):
            raise ValueError("its settings are damaged")
        gathered(run.settings, run.outcomes())
    except (ValueError, LookupError, TypeError, StopIteration, RuntimeError, AttributeError) as error:
        raise BadRun(f"{name} can't be opened as a report ({error!r}): choose a report.json") from error
    return run


def write(file: IO[str], findings: Findings, outcomes: Iterator[Outcome]) -> None:
    """The object of schema `lenses.report/1`, comparison by comparison."""

    def put(value: Any) -> None:
        json.dump(value, file, ensure_ascii=False, allow_nan=False)

    rows, failures, first = [], [], True
    file.write(f'{{"schema": "{SCHEMA}",\n"provenance": ')
    put(provenance(findings))
    file.write(',\n"comparisons": [')
    for one in outcomes:
        rows.append(_row(one.row))
        if one.comparison is None:
            row = one.row
            failures.append(
                {"row": row.row, "line": row.line, "prompt": row.prompt, "reason": one.failure or NOT_RUN}
            )
            continue
        file.write("\n" if first else ",\n")
        put(one.comparison.to_dict())
        first = False
    file.write('],\n"failures": ')
    put(failures)
    file.write(',\n"summary": ')
    put({**summary(findings), "rows": rows})
    file.write("}\n")


def provenance(findings: Findings) -> dict[str, Any]:
    """Where the numbers come from, and when the report was made (UTC)."""
    return {
        **findings.provenance,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": findings.model,
        "settings": findings.settings,
    }


def summary(findings: Findings) -> dict[str, Any]:
    """The report in sentences and small tables."""
    return {
        "sentences": aggregates.sentences(findings),
        "prompts": len(findings.rows),
        "explained": len(findings.explained),
        "failed": len(findings.failed),
        "additivity": _records(aggregates.additivity(findings)),
        "whole": _records(pd.DataFrame([aggregates.whole(findings)]))[0],
        "groups": _records(aggregates.groups(findings)),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "row": row.row, "line": row.line, "id": row.id, "group": row.group, "target": row.target,
        "extra": dict(row.extra),
    }  # fmt: skip


def _records(frame: Any) -> list[dict[str, Any]]:
    """A frame's rows as JSON objects, without numbers that JSON can't hold."""
    return [{str(key): _plain(value) for key, value in line.items()} for line in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return number(float(value))
    return int(value) if isinstance(value, np.integer) else value
