"""Logit lens: the target's probability as the model's own norm and head read it at each depth.

Law: it ends at the model's own probability, and its first difference is IG-Lens's observed shares.
Source: nostalgebraist, "interpreting GPT: the logit lens" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim, Unit
from lenses.lens import Card, Options

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

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        from lenses import readout

        depths = self.levels(trace.blocks)
        return self.sketch(
            depths, readout.levels(decoder, trace, target.position, target.token, depths)
        )  # fmt: skip

    def levels(self, blocks: int) -> tuple[int, ...]:
        return tuple(range(blocks + 1))

    def sketch(self, depths: Sequence[int], levels: Float[ndarray, " depth"]) -> Attribution:
        return Attribution(
            self.name, self.options, Unit.PROBABILITY, self.claim, np.array(depths), levels,
            start=float(levels[0]), end=float(levels[-1]),
        )  # fmt: skip
