"""What can be read of a state about a target, each with its unit: a value that telescopes over depths.

Law: whatever f is read, Σ (f(h[d+1]) − f(h[d])) = f(h[L]) − f(h[0]), so that a ledger in any of these
closes exactly. `lenses.measure` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from lenses.attribution import Unit

Readout = Literal[
    "probability", "log-probability", "bits", "logit", "difference", "log-odds", "variants", "entropy", "kl"
]

UNITS: dict[str, Unit] = {
    "probability": Unit.PROBABILITY,
    "log-probability": Unit.LOG_PROBABILITY,
    "bits": Unit.BITS,
    "logit": Unit.LOGIT,
    "difference": Unit.DIFFERENCE,
    "log-odds": Unit.LOG_ODDS,
    "variants": Unit.SUMMED,
    "entropy": Unit.ENTROPY,
    "kl": Unit.KL,
    "rank": Unit.RANK,
    "tuned": Unit.PROBABILITY,
}

MEANINGS: dict[str, str] = {
    "probability": "the target's probability; for a word of several tokens, that of all of them together",
    "log-probability": "its natural logarithm, which shows what happens where the probability is near 0",
    "bits": "the same with base 2: a bit is a factor of two",
    "logit": "the target's logit, before the softmax; for several tokens, the sum of theirs",
    "difference": "the target's probability less that of another word",
    "log-odds": "log of the target's probability over that of another word",
    "variants": "the summed probability of the word's spellings: with and without space, small, capital",
    "entropy": "how undecided the whole distribution is, in bits",
    "kl": "how far the distribution is from the model's final one (KL divergence, in bits)",
    "rank": "the target's place among all tokens, 1 for the likeliest; of a word, the worst of its tokens",
    "tuned": "the target's probability, each state mapped by the tuned lens before it is read",
}
"""What each reads, in plain words."""

AGAINST = ("difference", "log-odds")
"""Those that need another word."""

OWN = ("probability", "log-probability", "bits", "logit")
"""Those of the target alone, which each of its tokens has by itself."""

BIT = 0.6931471805599453
"""log 2."""

T = TypeVar("T")


def combined(readout: str, log: Sequence[T], logit: Sequence[T], exp: Callable[[T], Any]) -> Any:
    """The value of a readout from each word's natural log-probability and logit, the target's first.

    For arrays and tensors alike; `exp` is their exponential.
    """
    own: Any = log[0]
    if readout == "probability":
        return exp(own)
    if readout == "log-probability":
        return own
    if readout == "bits":
        return own / BIT
    if readout == "logit":
        return logit[0]
    if readout == "difference":
        return exp(own) - exp(log[1])
    if readout == "log-odds":
        return own - log[1]
    if readout == "variants":
        return sum(exp(one) for one in log)
    raise ValueError(f"{readout} is not made of words")
