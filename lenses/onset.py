"""At which depth an answer is there, by a definition that has a name."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

Rule = Literal["moves", "stays", "largest"]

RULES: dict[Rule, str] = {
    "moves": "half of all movement (the paper's)",
    "stays": "half is there to stay",
    "largest": "the largest step",
}


def onset(depths: Int[ndarray, " n"], shares: Float[ndarray, " n"], rule: Rule = "moves") -> int | None:
    """The depth at which the answer sets in; None where every share is 0, or the sum is.

    `moves`: the first depth at which the running sum of |share| reaches half of all |share|, the
    definition of the IG-Lens paper (arXiv 2606.29693). `stays`: the first depth from which the
    running sum never falls below half of the whole sum again. `largest`: the depth of the largest
    |share|.
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
    below = np.flatnonzero(running / running[-1] < 0.5)
    return int(depths[below[-1] + 1 if len(below) else 0])
