"""A list of prompts, each with every block skipped in turn, and the lenses held against that.

The drops of a prompt are kept with it, as one more attribution: `Skipped` has a lens's interface but
explains nothing, so it is in no registry. A run can be stopped and gone on with like a report's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lenses.attribution import Attribution, Claim, Unit
from lenses.errors import BadOption, LensesError
from lenses.findings import Findings, Gathering, Outcome
from lenses.lens import Card, Lens, Options
from lenses.methods.logit_lens import LogitLens
from lenses.progress import Progress
from lenses.scoring import Scoring
from lenses.store import Store, settings
from lenses.validation import Validation, validate

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.prompts import PromptList
    from lenses.target import Target
    from lenses.trace import Trace

BATCH = 32
"""Prompts in one pass of the model, at most."""


@dataclass(frozen=True)
class Skipped(Options):
    """At depth b + 1: how much lower the target's probability is when block b is skipped at its position.

    Not a reading of the model but a change of it, which the lenses are held against.
    """

    name: ClassVar[str] = "skip"
    title: ClassVar[str] = "Skipping the block"
    claim: ClassVar[Claim] = Claim.LEVEL
    source: ClassVar[str] = "IG-Lens paper, arXiv 2606.29693"
    card: ClassVar[Card] = Card(
        measures="How much lower the target's probability is when a block's input goes on as its output.",
        formula=r"p - p_{\setminus b}",
        adds_up="Nothing: blocks stand in for one another, so that single drops do not sum to the whole.",
        cost="One forward pass with a batch of one token a block.",
        caveats="A state that skipped a block is one that the model never saw.",
    )

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        from lenses import ablation
        from lenses.measure import measure

        own = measure(decoder, trace, target, "probability").levels([decoder.blocks]).values[0]
        drops = own - ablation.skipped(decoder, trace, target, last=True)
        return Attribution(
            self.name, self.options, Unit.PROBABILITY, self.claim, np.arange(1, len(drops) + 1), drops,
            start=float(drops[0]), end=float(drops[-1]),
        )  # fmt: skip


@dataclass(frozen=True)
class Levels(LogitLens):
    """The target's probability at each depth, which tells whether it is monotone; with no options."""

    name: ClassVar[str] = "levels"


@dataclass(frozen=True)
class Validated:
    """A list's validation, and what else its run came to: every row, the failed ones with their reason."""

    findings: Findings
    validation: Validation

    def to_dict(self) -> dict[str, Any]:
        """The object of `validation.json`."""
        failed = self.findings.failed[["row", "line", "prompt", "failure"]]
        return self.validation.to_dict() | {
            "file": self.findings.settings["file"], "model": self.findings.model,
            "lenses": self.findings.settings["lenses"], "provenance": self.findings.provenance,
            "failures": failed.rename(columns={"failure": "reason"}).to_dict("records"),
        }  # fmt: skip


def validating(
    decoder: Decoder,
    listed: PromptList,
    lenses: Sequence[Lens],
    folder: Path,
    *,
    resume: bool = False,
    batch_size: int = BATCH,
    longest: int | None = None,
) -> Generator[Progress, None, Validated]:
    """The lenses of a list held against skipped blocks; what is done is kept in the folder as it comes.

    Raises `BadOption` for lenses that do not score every block, `BadRun` for a folder that does not take
    this run, and `LensesError` where no prompt was left.
    """
    from lenses import batch

    refuse_unfit(lenses)
    with Store(folder, settings(decoder, listed, along(lenses)), listed.rows) as run:
        known = run.begin(resume)
        steps = batch.running(
            decoder, run.rows, along(lenses), batch_size=batch_size, longest=longest, known=known
        )  # fmt: skip
        yield from run.recorded(steps)
        yield Progress("counting")
        return counted(run.settings, run.outcomes(), lenses)


def along(lenses: Sequence[Lens]) -> list[Lens]:
    """All that a validation of these lenses runs: what they are held against comes first."""
    return [Skipped(), Levels(), *lenses]


def counted(settings: dict[str, Any], outcomes: Iterable[Outcome], lenses: Sequence[Lens]) -> Validated:
    """The validation of outcomes that are there, in the list's order."""
    gathering = Gathering(settings)
    scoring = Scoring(Skipped.name, {lens.name: lens.title for lens in lenses}, Levels.name)
    for one in outcomes:
        gathering.add(one)
        if one.comparison is not None:
            scoring.add(one.row, one.comparison)
    if (scores := scoring.scores()) is None:
        raise LensesError(_why_none(gathering.findings()))
    return Validated(gathering.findings(), validate(scores))


def refuse_unfit(lenses: Sequence[Lens]) -> None:
    """Raises `BadOption` for a lens whose options leave blocks without a score, before any work."""
    for lens in lenses:
        if lens.options.get("depths") is not None:
            raise BadOption(f"{lens.name} has to score every block to be validated: leave out its depths")


def _why_none(found: Findings) -> str:
    reasons = [*found.failed["failure"], *found.explained["warnings"]]
    return f"no prompt of this list could be validated; {reasons[0] if reasons else 'it has none'}"
