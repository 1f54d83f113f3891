"""All that a report shows of a list: counts, means, quartiles and the few rows that are shown, no more.

Its size does not grow with the list. `aggregates.summarized` makes it of findings that are in memory,
`distributed.totals` of a run whose numbers no single machine holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from lenses.attribution import Claim, Form, Unit, Verdict
from lenses.headline import percent
from lenses.prompts.wording import counted
from lenses.validation import Validation


@dataclass(frozen=True)
class LensSummary:
    """One lens over the `prompts` that it could explain."""

    lens: str
    title: str
    unit: Unit
    claim: Claim
    options: dict[str, Any]
    depths: Int[ndarray, " depth"]
    prompts: int
    verdicts: dict[str, int]
    """How many prompts got each verdict."""
    worst: float
    """The largest |found − expected| of the claim; not a number where nothing is claimed."""
    median: float

    @property
    def form(self) -> Form:
        return Form.of(self.claim, self.unit)

    @property
    def keeps_ledger(self) -> bool:
        """Whether its values are shares of a probability."""
        return self.claim is Claim.ACROSS and self.unit is Unit.PROBABILITY


@dataclass(frozen=True)
class Counts:
    """What the sentences of a report say.

    `whole` has the keys `prompts` (explained), `probability` (mean), `low`, `onset` and `high` (its
    quartiles) and `against` (mean movement against the trend); `probable` counts prompts whose word gets
    at least 50 %, `missing` rows that a run which was stopped did not reach.
    """

    settings: dict[str, Any]
    model: dict[str, Any]
    asked: int
    failed: int
    missing: int
    probable: int
    whole: dict[str, Any]
    lenses: tuple[LensSummary, ...]

    @property
    def explained(self) -> int:
        return self.asked - self.failed

    @property
    def ledger(self) -> LensSummary | None:
        """The first lens whose values are shares of a probability."""
        return next((lens for lens in self.lenses if lens.keeps_ledger), None)


@dataclass(frozen=True)
class Summary:
    """The tables, by the names of `aggregates` that make them of findings.

    `bands` has a frame for each lens; `grouped` counts all groups, of which `groups` shows the largest;
    `listed` and `failures` have the columns of `findings.COLUMNS`.
    """

    counts: Counts
    provenance: dict[str, Any]
    bands: dict[str, pd.DataFrame]
    onsets: pd.DataFrame
    onset_groups: pd.DataFrame
    groups: pd.DataFrame
    grouped: int
    agreement: pd.DataFrame
    notable: dict[str, pd.DataFrame]
    listed: pd.DataFrame
    failures: pd.DataFrame
    validation: Validation | None = None
    """How well the methods rank the blocks, of a list that was run with ablation in one process."""


def additivity(counts: Counts, claims: dict[Claim, str]) -> pd.DataFrame:
    """One row a lens: its claim, how many prompts got which verdict, and the worst and the median gap."""
    lines = []
    for lens in counts.lenses:
        line: dict[str, Any] = {
            "lens": lens.title, "unit": lens.unit.value, "claim": claims[lens.claim], "prompts": lens.prompts,
        }  # fmt: skip
        line |= {verdict.value: lens.verdicts.get(verdict.value, 0) for verdict in Verdict}
        lines.append(line | {"worst": lens.worst, "median": lens.median})
    return pd.DataFrame(lines)


def sentences(counts: Counts) -> list[str]:
    """The report in a few plain sentences."""
    name, whole = counts.model["name"], counts.whole
    told = [
        f"{counted(counts.asked, 'prompt')} {_were(counts.asked)} asked of {name}; {counts.explained} could "
        "be explained"
    ]
    if bad := counts.failed - counts.missing:
        told[0] += f", and {counted(bad, 'prompt')} could not: each is listed below with its reason"
    told[0] += "."
    if counts.missing:
        missing = counts.missing
        told.append(f"The run was stopped: {counted(missing, 'prompt')} {_were(missing)} not reached.")
    if not counts.explained:
        return told
    told.append(
        f"The word in question gets {percent(float(whole['probability']))} on average, and at least "
        f"50 % in {counted(counts.probable, 'prompt')}."
    )
    told += [_verdict(lens) for lens in counts.lenses if lens.claim is not Claim.LEVEL]
    known = {lens.lens: lens.prompts for lens in counts.lenses}
    for name in counts.settings["lenses"]:
        if left := counts.explained - known.get(name, 0):
            told.append(f"{name} had to be left out of {counted(left, 'prompt')}, whose notes say why.")
    low, middle, high = whole["low"], whole["onset"], whole["high"]
    if not math.isnan(middle):
        spread = f"between depths {low:.0f} and {high:.0f}" if low < high else f"at depth {middle:.0f} itself"
        told.append(
            f"The answer sets in at depth {middle:.0f} of {counts.model['blocks']} in the middle prompt, "
            f"and {spread} in at least half of them (the depth by which half of all movement of its "
            "probability has happened)."
        )
    return told


def _verdict(lens: LensSummary) -> str:
    counts = {verdict: lens.verdicts.get(verdict.value, 0) for verdict in Verdict}
    good = counts[Verdict.EXACT] + counts[Verdict.CONVERGED]
    how = "exactly" if counts[Verdict.EXACT] else "within 1 %"
    worst = "unknown" if math.isnan(lens.worst) else f"{lens.worst:.1e}"
    told = (
        f"{lens.title} adds up {how} in {good} of {counted(lens.prompts, 'prompt')} "
        f"(worst gap {worst} {lens.unit.value})"
    )
    if counts[Verdict.NOT_CONVERGED]:
        told += f"; in {counts[Verdict.NOT_CONVERGED]} its integral has not converged"
    if counts[Verdict.BROKEN]:
        told += f"; in {counts[Verdict.BROKEN]} it is BROKEN, which is a bug"
    return told + "."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
