"""A lens that exists for one test: adding it touches no page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lenses.attribution import Attribution, Claim, Unit
from lenses.lens import Card, Options, option


@dataclass(frozen=True)
class Throwaway(Options):
    """The number of an option at depths 1 and 2."""

    name: ClassVar[str] = "throwaway"
    title: ClassVar[str] = "Throw-away lens"
    claim: ClassVar[Claim] = Claim.LEVEL
    source: ClassVar[str] = "a test"
    card: ClassVar[Card] = Card("nothing", r"\mathrm{throwaway}", "Nothing adds up here.", "none", "none")

    times: int = option(1, "the number that is shown")

    def attribute(self, decoder, trace, target):
        values = np.full(2, float(self.times))
        return Attribution(
            self.name, self.options, Unit.PROBABILITY, self.claim, np.array([1, 2]), values, 0.0, 1.0
        )
