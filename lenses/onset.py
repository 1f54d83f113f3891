"""At which depth an answer is there, by definition."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray


def onset(depths: Int[ndarray, " n"], shares: Float[ndarray, " n"]) -> int | None:
    """The first depth at which the running sum of |share| reaches half of all |share|.

    The definition of the IG-Lens paper (arXiv 2606.29693). None where every share is 0.
    """
    running = np.abs(shares).cumsum()
    if not len(running) or running[-1] == 0:
        return None
    return int(depths[np.searchsorted(running, running[-1] / 2)])
