"""What one position reads at every depth: the target's level, and the likeliest tokens beside it.

Plain values, without torch, that go to JSON and back; `look` makes one with a decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lenses.tokens import text_of

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class Ranked:
    """A token and its probability somewhere."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Surface:
    """At depths 0…L: the target's probability and its rank (1 for the likeliest token), the entropy of
    the whole distribution in bits, and the likeliest tokens, the likeliest first."""

    levels: Float[ndarray, " depth"]
    top: tuple[tuple[Ranked, ...], ...]
    ranks: Int[ndarray, " depth"]
    entropy: Float[ndarray, " depth"]

    def to_dict(self) -> dict[str, Any]:
        """`{"levels": [...], "ranks": [...], "entropy": [...], "top": [[[id, text, p] × k] a depth]}`."""
        return {
            "levels": self.levels.tolist(),
            "ranks": self.ranks.tolist(),
            "entropy": self.entropy.tolist(),
            "top": [[[r.id, r.text, r.probability] for r in row] for row in self.top],
        }


def read(data: dict[str, Any]) -> Surface:
    """The surface of an object that `to_dict` made."""
    top = tuple(tuple(Ranked(*entry) for entry in row) for row in data["top"])
    numbers = (np.array(data["levels"]), top, np.array(data["ranks"]), np.array(data["entropy"]))
    return Surface(*numbers)


def look(decoder: Decoder, trace: Trace, target: Target, top: int = 5) -> Surface:
    """The target's position at every depth, as the model's own norm and head read it; `top` ≤ 5.

    Levels and ranks of a word of several tokens are the whole word's (`measure`), the rest is of the
    position of its first.
    """
    from lenses import readout
    from lenses.measure import measure

    found = readout.depths(decoder, trace, target.position, target.token, detail=True)
    texts = {int(id): text_of(decoder.tokenizer, int(id)) for id in np.unique(found.top)}
    rows = zip(found.top[:, :top], found.top_probability[:, :top], strict=True)
    levels, ranks = found.probability, found.rank
    if target.more:
        every = range(trace.blocks + 1)
        levels = measure(decoder, trace, target, "probability").levels(every).values
        ranks = measure(decoder, trace, target, "rank").levels(every).values.astype(np.int64)
    return Surface(
        levels,
        tuple(
            tuple(Ranked(int(id), texts[int(id)], float(p)) for id, p in zip(ids, chances, strict=True))
            for ids, chances in rows
        ),
        ranks,
        found.entropy / np.log(2),
    )
