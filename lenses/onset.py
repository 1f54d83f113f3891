"""At which depth an answer is there, by a definition that has a name: pure functions of a `Path`.

Seven definitions are in use, and they answer different questions, so all stand in `DEFINITIONS` with
what each means. Four (`RULES`) need nothing but shares; the others look at levels or at the target's
rank. None of them changes with the unit. Sources: `moves` is the IG-Lens paper's (arXiv 2606.29693),
`prediction-depth` is that of Baldock et al. (arXiv 2106.09647), applied to a readout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

Rule = Literal["moves", "crosses", "stays", "largest"]
Name = Literal["moves", "crosses", "stays", "commits", "largest", "prediction-depth", "top-10"]

RULES: tuple[Rule, ...] = get_args(Rule)
"""What shares alone decide, so that each lens that claims a sum across depths has an onset of its own."""

NEAR = 10
"""The rank from which on a token is near the top."""


@dataclass(frozen=True)
class Definition:
    """What an onset means: a name for a row, a sentence, and whether it changes with the path's start."""

    title: str
    meaning: str
    baseline: bool


DEFINITIONS: dict[Name, Definition] = {
    "moves": Definition(
        "Half of all movement (paper)",
        "the first depth by which half of all ups and downs together have happened",
        baseline=True,
    ),
    "crosses": Definition(
        "Half of the change, first time",
        "the first depth at which the probability has come half of its way from start to end",
        baseline=True,
    ),
    "stays": Definition(
        "Half of the change, to stay",
        "the first depth from which at least half of that way never gets lost again",
        baseline=True,
    ),
    "commits": Definition(
        "Half of the answer, to stay",
        "the first depth from which the probability is never below half of what it ends at",
        baseline=False,
    ),
    "largest": Definition(
        "Largest step", "the depth of the largest share, up or down", baseline=True
    ),
    "prediction-depth": Definition(
        "Top 1 to stay", "the first depth from which the word is always the likeliest", baseline=False
    ),
    "top-10": Definition(
        "Top 10, first time",
        f"the first depth at which the word is among the {NEAR} likeliest",
        baseline=False,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Path:
    """The target's probability and its rank (1 for the likeliest token) at depths 0, …, L, or at some of
    them, and the probability from which the ledger starts: at depth 0 for the embedding baseline."""

    depths: Int[ndarray, " depth"]
    levels: Float[ndarray, " depth"]
    ranks: Int[ndarray, " depth"]
    start: float

    @property
    def shares(self) -> Float[ndarray, " block"]:
        """What each step gives: the first one from the ledger's start."""
        return np.diff(np.concatenate([[self.start], self.levels[1:]]))

    def thinned(self, stride: int) -> Path:
        """The same with every `stride`-th depth alone, counted from the last, and with depth 0."""
        kept = sorted({0, *range(len(self.depths) - 1, 0, -stride)})
        return replace(
            self, depths=self.depths[kept], levels=self.levels[kept], ranks=self.ranks[kept]
        )  # fmt: skip


def find(path: Path, name: Name) -> int | None:
    """The depth of a path's onset by one definition; None where it never comes.

    Shares stand at depths 1…L, so what they decide is never 0: there is none where nothing moves, and
    for `crosses` and `stays` where the end is the start. A fall (Δp < 0) has its half way down as a rise
    has it up. `commits`, `prediction-depth` and `top-10` look at states, so that they may be 0. The first
    does not exist for an answer of probability 0, and is early for a fall, which is above half of its end
    all along; the second is None where the target is not the likeliest token in the end, the third where
    it never is near the top.
    """
    if name in RULES:
        return onset(path.depths[1:], path.shares, name)
    if name == "commits":
        end = path.levels[-1]
        return _kept(path.depths, path.levels >= end / 2) if end > 0 else None
    if name == "prediction-depth":
        return _kept(path.depths, path.ranks == 1)
    return _first(path.depths, path.ranks <= NEAR)


def onset(depths: Int[ndarray, " n"], shares: Float[ndarray, " n"], rule: Rule = "moves") -> int | None:
    """The depth at which the answer sets in; None where every share is 0, or the sum is.

    `moves`: the first depth at which the running sum of |share| reaches half of all |share|, the
    definition of the IG-Lens paper (arXiv 2606.29693). `crosses`: the first depth at which the running
    sum reaches half of the whole sum. `stays`: the first depth from which it never falls below that
    again. `largest`: the depth of the largest |share|.
    """
    sizes = np.abs(shares)
    if not len(shares) or not sizes.any():
        return None
    if rule == "largest":
        return int(depths[sizes.argmax()])
    if rule == "moves":
        running = sizes.cumsum()
        return int(depths[np.searchsorted(running, running[-1] / 2)])
    running = shares.cumsum()
    if running[-1] == 0:
        return None
    with np.errstate(over="ignore"):  # a change that is next to nothing beside its ups and downs
        there = running / running[-1] >= 0.5
    return _first(depths, there) if rule == "crosses" else _kept(depths, there)


def _first(depths: Int[ndarray, " n"], there: ndarray) -> int | None:
    """The first depth at which something holds."""
    return int(depths[there.argmax()]) if there.any() else None


def _kept(depths: Int[ndarray, " n"], there: ndarray) -> int | None:
    """The first depth from which on it always holds."""
    missing = np.flatnonzero(~there)
    after = missing[-1] + 1 if len(missing) else 0
    return int(depths[after]) if after < len(depths) else None
