"""What a list of prompts came to: one row a prompt, one value a prompt, lens and depth; no torch.

`Gathering` takes outcomes one by one and keeps numbers only, so that a long list fits; `Findings` is
the result, from which every table, chart and file of a report is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from lenses.attribution import Claim, Form, Unit
from lenses.onset import onset
from lenses.outcome import Comparison, Result
from lenses.prompts import Row
from lenses.scoring import Scoring
from lenses.validation import Scores, Validation, validate

COLUMNS = (
    "row", "line", "id", "group", "prompt", "target", "probability", "delta", "onset", "gap", "verdict",
    "warnings", "failure",
)  # fmt: skip
"""The columns of `summary.csv`, before the file's own."""


ABLATION = "ablation"
"""The lens that others are held against."""
NOT_RUN = "not run: the run was stopped before this row"


@dataclass(frozen=True)
class Outcome:
    """What came of one row: its comparison, or the reason why there is none.

    `passing` tells of a failure that has nothing to do with the row, such as too little memory: another
    try may end otherwise.
    """

    row: Row
    comparison: Comparison | None = None
    failure: str = ""
    passing: bool = False


@dataclass(frozen=True)
class LensFindings:
    """One lens over the prompts that it could explain, in the list's order."""

    lens: str
    title: str
    unit: Unit
    claim: Claim
    options: dict[str, Any]
    depths: Int[ndarray, " depth"]
    rows: Int[ndarray, " prompt"]
    values: Float[ndarray, "prompt depth"]
    gaps: Float[ndarray, " prompt"]
    """Found − expected of the claim; not a number where nothing is claimed."""
    changes: Float[ndarray, " prompt"]
    """Δp of each prompt, from where the lens's path starts if it is a ledger."""
    verdicts: tuple[str, ...]
    seconds: float

    @property
    def form(self) -> Form:
        return Form.of(self.claim, self.unit)

    @property
    def keeps_ledger(self) -> bool:
        """Whether its values are shares of a probability."""
        return self.claim is Claim.ACROSS and self.unit is Unit.PROBABILITY


@dataclass(frozen=True)
class Findings:
    """A report's numbers. `rows` has `COLUMNS`, then `against` and `extra`, a mapping.

    `against` is how much probability moved against the whole change: 0 for a monotone ledger.
    `settings` is what was asked (`store.settings`), `model` and `provenance` as in a comparison.
    """

    settings: dict[str, Any]
    model: dict[str, Any]
    provenance: dict[str, Any]
    rows: pd.DataFrame
    lenses: tuple[LensFindings, ...]
    scores: Scores | None = None
    """The other lenses' scores held against ablation, where the list was run with it."""

    @cached_property
    def validation(self) -> Validation | None:
        """How well the lenses rank the blocks, by the drops of the same run."""
        return None if self.scores is None else validate(self.scores)

    @property
    def explained(self) -> pd.DataFrame:
        """The rows that have a comparison."""
        return self.rows[self.rows["failure"] == ""]

    @property
    def failed(self) -> pd.DataFrame:
        return self.rows[self.rows["failure"] != ""]

    @property
    def groups(self) -> list[str]:
        """The groups that explained rows name, in the list's order."""
        return [group for group in dict.fromkeys(self.explained["group"]) if group]

    @property
    def ledger(self) -> LensFindings | None:
        """The first lens whose values are shares of a probability."""
        return next((lens for lens in self.lenses if lens.keeps_ledger), None)


@dataclass
class _Lens:
    """What is being gathered of one lens."""

    first: Result
    rows: list[int] = field(default_factory=list)
    values: list[Float[ndarray, " depth"]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, row: int, result: Result) -> None:
        if not np.array_equal(result.attribution.depths, self.first.attribution.depths):
            raise ValueError(f"{result.attribution.lens} has other depths in row {row} than before")
        self.rows.append(row)
        self.values.append(result.attribution.values)
        self.gaps.append(result.additivity.gap if result.additivity.claimed else np.nan)
        self.changes.append(result.yardstick.expected)
        self.verdicts.append(result.additivity.verdict.value)
        self.seconds += result.seconds

    def found(self) -> LensFindings:
        a = self.first.attribution
        return LensFindings(
            a.lens, self.first.title, a.unit, a.claim, a.options, a.depths, np.array(self.rows),
            np.stack(self.values), np.array(self.gaps), np.array(self.changes), tuple(self.verdicts),
            self.seconds,
        )  # fmt: skip


class Gathering:
    """Takes outcomes in the list's order and makes `Findings` of them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._rows: list[dict[str, Any]] = []
        self._lenses: dict[str, _Lens] = {}
        self._newest: Comparison | None = None
        self._gap = 0.0
        self._scoring = _scoring(settings["lenses"])

    def add(self, one: Outcome) -> None:
        row, found = one.row, one.comparison
        self._rows.append(summary(one))
        for result in found.results if found else ():
            name = result.attribution.lens
            self._lenses.setdefault(name, _Lens(result)).add(row.row, result)
        if found and self._scoring:
            self._scoring.add(row, found)
        if found:
            self._gap = max(self._gap, found.model["readout_gap"] or 0.0)
            if not self._newest or found.provenance["created"] > self._newest.provenance["created"]:
                self._newest = found

    def findings(self) -> Findings:
        """What there is by now."""
        known = self._newest
        order = list(self._settings["lenses"])
        lenses = sorted(self._lenses.values(), key=lambda lens: order.index(lens.first.attribution.lens))
        found = tuple(lens.found() for lens in lenses)
        return Findings(
            self._settings,
            {**known.model, "readout_gap": self._gap} if known else dict(self._settings["model"]),
            dict(known.provenance) if known else {},
            _completed(pd.DataFrame(self._rows, columns=[*COLUMNS, "against", "extra"]), found),
            found,
            self._scoring.scores() if self._scoring else None,
        )


def _scoring(lenses: Mapping[str, Mapping[str, Any]]) -> Scoring | None:
    """What holds the other lenses against ablation, where it left out whole blocks, one at a time.

    A lens that was asked for some depths only has no score for every block, and stays out.
    """
    drops = lenses.get(ABLATION)
    if drops is None or (drops["kind"], drops["span"]) != ("skip", 1):
        return None
    others = [name for name in lenses if name != ABLATION and lenses[name].get("depths") is None]
    return Scoring(ABLATION, dict.fromkeys(others, "")) if others else None


def gathered(settings: dict[str, Any], outcomes: Iterable[Outcome]) -> Findings:
    """The findings of a whole list."""
    gathering = Gathering(settings)
    for one in outcomes:
        gathering.add(one)
    return gathering.findings()


def summary(one: Outcome) -> dict[str, Any]:
    """One line of `summary.csv`, but for the numbers of a lens, which `_completed` adds."""
    row, found = one.row, one.comparison
    line: dict[str, Any] = dict.fromkeys(COLUMNS)
    line |= {
        "row": row.row, "line": row.line, "id": row.id, "group": row.group, "prompt": row.prompt,
        "target": row.target or "", "failure": one.failure, "warnings": "", "extra": dict(row.extra),
    }  # fmt: skip
    if found is not None:
        line |= {
            "target": found.target_text, "probability": found.probability,
            "warnings": "; ".join(found.warnings),
        }  # fmt: skip
    return line


def _completed(rows: pd.DataFrame, lenses: tuple[LensFindings, ...]) -> pd.DataFrame:
    """The rows with the numbers of one lens, the same for all: the first that keeps a ledger, or the first.

    A row from which that lens was left out has none. Numbers stay numbers where some are missing.
    """
    chosen = next((lens for lens in lenses if lens.keeps_ledger), lenses[0] if lenses else None)
    if chosen is not None:
        told = pd.DataFrame({"delta": chosen.changes, "gap": chosen.gaps, "verdict": chosen.verdicts})
        if chosen.keeps_ledger:
            told["onset"] = [onset(chosen.depths, shares) for shares in chosen.values]
            told["against"] = [against(shares) for shares in chosen.values]
        told.index = pd.Index(chosen.rows)
        for name in told:
            rows[name] = rows["row"].map(told[name])
    floats = dict.fromkeys(("probability", "delta", "gap", "against"), "float64")
    return rows.astype({**floats, "onset": "Int64", "verdict": "string"})


def against(shares: Float[ndarray, " depth"]) -> float:
    """How much moved against the whole change: 0 where every share has the sign of the sum."""
    return float(np.abs(shares).sum() - abs(shares.sum())) / 2
