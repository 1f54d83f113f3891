"""Findings and files of a run, in two passes over its outcomes: first the numbers, then what is written."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lenses import aggregates
from lenses.findings import Findings, Gathering, Outcome
from lenses.progress import Progress, finish
from lenses.report import archive, tables
from lenses.report.details import Details
from lenses.report.page import html

FILES = ("report.html", "report.json", "report.xlsx", "results.parquet", "results.csv", "summary.csv")


@runtime_checkable
class Run(Protocol):
    """What was asked and what came of it: a `store.Store` that is done, or a `report.json`."""

    @property
    def settings(self) -> dict[str, Any]: ...

    def outcomes(self) -> Iterator[Outcome]:
        """The outcome of every row in the list's order; may be asked for again."""
        ...


def write(folder: Path, run: Run) -> Findings:
    """The files of a report in a folder, and the findings that they show."""
    return finish(writing(folder, run))


def writing(folder: Path, run: Run) -> Generator[Progress, None, Findings]:
    """`write`, with its progress."""
    folder.mkdir(parents=True, exist_ok=True)
    gathering = Gathering(run.settings)
    for count, one in enumerate(run.outcomes(), start=1):
        yield Progress("gathering the results", count)
        gathering.add(one)
    found = gathering.findings()
    total = len(found.rows)
    summary = aggregates.summarized(found)
    details = Details(summary)
    with tables.Results(folder) as results:
        for count, one in enumerate(run.outcomes(), start=1):
            yield Progress("writing the results", count, total)
            results.add(one)
            details.add(one)
    tables.write_summary(folder / "summary.csv", found)
    yield Progress("writing report.json")
    with open(folder / "report.json", "w", encoding="utf-8") as file:
        archive.write(file, found, run.outcomes())
    yield Progress("writing report.xlsx")
    tables.write_workbook(folder / "report.xlsx", found)
    yield Progress("drawing report.html")
    (folder / "report.html").write_text(html(summary, details), encoding="utf-8")
    return found
