"""Logit lens: the target's probability as the model's own norm and head read it at each depth.

Law: it ends at the model's own probability, and its first difference is IG-Lens's observed shares.
Source: nostalgebraist, "interpreting GPT: the logit lens" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim
from lenses.lens import Card, Options, option
from lenses.readouts import AGAINST, MEANINGS, UNITS, Readout

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class LogitLens(Options):
    """A level at each depth: what the model would say if it stopped there."""

    name: ClassVar[str] = "logit-lens"
    title: ClassVar[str] = "Logit lens"
    claim: ClassVar[Claim] = Claim.LEVEL
    source: ClassVar[str] = "nostalgebraist 2020, “interpreting GPT: the logit lens”"
    card: ClassVar[Card] = Card(
        measures="The target's probability if the model stopped at this depth and read its state "
        "with its own final norm and head.",
        formula=r"\ell_d = f(h_d), \qquad d = 0, \dots, L",
        adds_up="Levels are readings, not parts: nothing has to add up. Their first differences are "
        "IG-Lens's shares.",
        cost="One forward pass and one head product a depth.",
        caveats="Early states were never trained to be read by the last norm and head, so early "
        "levels are biased: a word can be decided long before it is readable.",
    )

    readout: Readout | Literal["rank"] = option(
        "probability", "what is read of the target at each depth", live=True, shared=True,
        meanings=MEANINGS,
    )  # fmt: skip
    against: str = option(
        "", "the other word, for difference and log-odds", when=("readout", *AGAINST), live=True, shared=True,
        word=True,
    )  # fmt: skip

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        from lenses.measure import measure

        depths = range(trace.blocks + 1)
        found = measure(decoder, trace, target, self.readout, self.against).levels(depths)
        return self._made(depths, found.values, found.pieces)

    def levels(self, blocks: int) -> tuple[int, ...]:
        return tuple(range(blocks + 1))

    def sketch(self, depths: Sequence[int], levels: Float[ndarray, " depth"]) -> Attribution | None:
        return self._made(depths, levels) if self.readout == "probability" else None

    def _made(
        self,
        depths: Sequence[int],
        values: Float[ndarray, " depth"],
        pieces: Float[ndarray, "depth piece"] | None = None,
    ) -> Attribution:
        return Attribution(
            self.name, self.options, UNITS[self.readout], self.claim, np.array(depths), values,
            start=float(values[0]), end=float(values[-1]), pieces=pieces,
        )  # fmt: skip
