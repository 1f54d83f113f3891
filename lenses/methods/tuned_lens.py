"""Tuned lens: the target's probability as the model reads each depth's state after a fitted affine map.

Law: it ends at the model's own probability, and with maps of zeros it is the logit lens.
Source: Belrose et al. 2023, arXiv 2303.08112.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lenses.attribution import Attribution, Claim
from lenses.errors import UnsupportedLens
from lenses.lens import Card, Options, option
from lenses.readouts import AGAINST, MEANINGS, UNITS, Readout

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.measure import Measure
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class TunedLens(Options):
    """A level at each depth: what the model's final answer can be guessed to be from this state."""

    name: ClassVar[str] = "tuned-lens"
    title: ClassVar[str] = "Tuned lens"
    claim: ClassVar[Claim] = Claim.LEVEL
    source: ClassVar[str] = "Belrose et al. 2023, arXiv 2303.08112"
    card: ClassVar[Card] = Card(
        measures="The target's probability as the model's own norm and head read this depth's state after an "
        "affine map that was fitted to foretell the model's final answer.",
        formula=r"\ell_d = f(h_d + A_d h_d + \lVert h_d \rVert_{\mathrm{rms}}\, b_d), \quad d < L, "
        r"\qquad \ell_L = f(h_L)",
        adds_up="Levels are readings, not parts: nothing has to add up.",
        cost="One forward pass, one small matrix and one head product a depth; the maps are fitted once a "
        "model (`lenses fit-tuned-lens`).",
        caveats="A map can know what usually follows, so a level can be ahead of what the model has worked "
        "out by then. It was fitted on positions after the first and on one kind of text: a first token and "
        "other text are read less well.",
    )

    readout: Readout | Literal["rank"] = option(
        "probability", "what is read of the target at each depth", live=True, shared=True, meanings=MEANINGS
    )
    against: str = option(
        "", "the other word, for difference and log-odds", when=("readout", *AGAINST), live=True, shared=True,
        word=True,
    )  # fmt: skip
    folder: str | None = option(
        None, "a folder with a tuned lens of this model; found by itself if none", shared=True, path=True
    )

    def available(self, decoder: Decoder) -> str:
        from lenses import tuned

        try:
            tuned.find(decoder, self.folder)
        except UnsupportedLens as refusal:
            return str(refusal)
        return ""

    def prepare(self, decoder: Decoder, wanted: Sequence[tuple[Trace, Target]]) -> None:
        from lenses.measure import remember

        remember([self._measure(decoder, *one) for one in wanted])

    def _measure(self, decoder: Decoder, trace: Trace, target: Target) -> Measure:
        from lenses import tuned
        from lenses.measure import measure

        return measure(
            decoder, trace, target, self.readout, self.against, tuned.find(decoder, self.folder)
        )  # fmt: skip

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        f = self._measure(decoder, trace, target)
        found = f.levels(range(trace.blocks + 1))
        return Attribution(
            self.name, self.options, UNITS[self.readout], self.claim, np.arange(len(found.values)),
            found.values, start=float(found.values[0]), end=float(found.values[-1]), pieces=found.pieces,
        )  # fmt: skip
