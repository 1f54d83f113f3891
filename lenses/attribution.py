"""What every lens returns, and the one judge of whether it adds up. NumPy only from here on.

A lens states a claim and never grades itself: `check` compares what was claimed with what was found,
and `yardstick` measures every lens, whatever it claims, against the same change of probability.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

QUADRATURE = 0.01
"""A quadrature has converged when it is within this part of |end − start|."""

IDENTITY = 1e-12
"""The gap that an identity in float64 may show."""


class Unit(StrEnum):
    PROBABILITY = "probability"
    LOG_PROBABILITY = "log-probability"  # natural
    BITS = "log-probability in bits"
    LOGIT = "logit"
    DIFFERENCE = "difference of probability"
    LOG_ODDS = "log-odds"  # natural
    SUMMED = "summed probability"
    ENTROPY = "entropy in bits"
    KL = "KL divergence in bits"
    RANK = "rank"
    DROP = "drop of probability"


class Claim(StrEnum):
    LEVEL = "level"  # a reading at each depth; nothing has to add up
    ACROSS = "across"  # shares summed over depths = end − start
    WITHIN = "within"  # shares summed over positions (and units) = end − start, at every depth


class Form(StrEnum):
    """What one value is: it says how it is named and drawn."""

    LEVEL = "level"
    SHARE = "share"
    TOTAL = "total"  # of a depth
    DROP = "drop"  # what is lost without something

    @classmethod
    def of(cls, claim: Claim, unit: Unit) -> Form:
        """The form of values that claim nothing depends on their unit."""
        if claim is Claim.LEVEL:
            return cls.DROP if unit is Unit.DROP else cls.LEVEL
        return cls.SHARE if claim is Claim.ACROSS else cls.TOTAL


class Verdict(StrEnum):
    EXACT = "exact"  # an identity: the gap is rounding
    CONVERGED = "converged"  # a quadrature within 1 % of |end − start|
    NOT_CONVERGED = "not-converged"
    NOT_CLAIMED = "not-claimed"  # levels and drops
    BROKEN = "broken"  # a claimed identity that fails: an error


@dataclass(frozen=True)
class Attribution:
    """One number a depth for one target, in `unit`, and what they are claimed to add up to.

    `start` is where a path or the levels start, and `end` the model's own value, from which drops fall.
    `quadrature` tells a sum that converges from one that is an identity; `precision` is the machine
    epsilon of the arithmetic behind the values; `constant` is listed beside them, never hidden.
    """

    lens: str
    options: dict[str, Any]
    unit: Unit
    claim: Claim
    depths: Int[ndarray, " n"]
    values: Float[ndarray, " n"]
    start: float
    end: float
    constant: float = 0.0
    positions: Float[ndarray, "n position"] | None = None
    halves: Float[ndarray, "n 2"] | None = None
    """What attention and MLP gave of each value, not a number where a block has no such parts."""
    pieces: Float[ndarray, "n piece"] | None = None
    """The same values for each token of a target of several tokens by itself."""
    plain_gap: float | None = None
    """What the sum at the worst depth would be off by, had its steps not been made to sum to what was
    observed; None where nothing was corrected."""
    quadrature: bool = False
    precision: float = field(default=float(np.finfo(np.float64).eps))

    @property
    def form(self) -> Form:
        return Form.of(self.claim, self.unit)


@dataclass(frozen=True)
class Additivity:
    """A claim, checked: `gap` = found − expected, in the attribution's unit."""

    claimed: bool
    expected: float
    found: float
    gap: float
    tolerance: float
    verdict: Verdict


@dataclass(frozen=True)
class Yardstick:
    """What the values sum to over depths, beside the change of probability Δp."""

    expected: float
    found: float
    claimed: bool


def check(a: Attribution) -> Additivity:
    """Whether the values add up as claimed; for a claim within each depth, at the worst one.

    Halves have to add up to their value; where some do not, that is what is broken and told.
    """
    if (broken := _broken_halves(a)) is not None:
        return broken
    expected = a.end - a.start
    totals = a.values if a.claim is Claim.WITHIN else np.array([a.values.sum() + a.constant])
    found = float(totals[np.argmax(np.abs(totals - expected))])
    gap, tolerance = found - expected, _tolerance(a, expected)
    if a.claim is Claim.LEVEL:
        verdict = Verdict.NOT_CLAIMED
    elif abs(gap) <= tolerance:
        verdict = Verdict.CONVERGED if a.quadrature else Verdict.EXACT
    else:
        verdict = Verdict.NOT_CONVERGED if a.quadrature else Verdict.BROKEN
    return Additivity(a.claim is not Claim.LEVEL, expected, found, gap, tolerance, verdict)


def yardstick(a: Attribution, delta: float) -> Yardstick:
    """The common measure; only probabilities claimed across depths are held to it.

    `delta` is Δp of the comparison; a lens that claims the sum is measured on its own start and end.
    """
    claimed = a.claim is Claim.ACROSS and a.unit is Unit.PROBABILITY
    return Yardstick(a.end - a.start if claimed else delta, float(a.values.sum()), claimed)


def _broken_halves(a: Attribution) -> Additivity | None:
    """The worst depth whose halves do not add up to its value, if there is one."""
    if a.halves is None or not (there := np.isfinite(a.halves).any(axis=1)).any():
        return None
    sums, values = a.halves[there].sum(axis=1), a.values[there]
    gaps, tolerance = sums - values, _tolerance(a, a.end - a.start)
    worst = int(np.nan_to_num(np.abs(gaps), nan=np.inf).argmax())
    if abs(gaps[worst]) <= tolerance:
        return None
    found, expected = float(sums[worst]), float(values[worst])
    return Additivity(True, expected, found, found - expected, tolerance, Verdict.BROKEN)


def _tolerance(a: Attribution, expected: float) -> float:
    """Rounding for an identity: 16 roundings of everything that was summed; 1 % for a quadrature."""
    if a.quadrature:
        return QUADRATURE * abs(expected)
    summed = float(np.abs(a.values).sum()) + abs(a.constant) + abs(a.start) + abs(a.end)
    summed += 0.0 if a.halves is None else float(np.nansum(np.abs(a.halves)))
    return max(IDENTITY, 16 * a.precision * summed)
