"""One number a block out of any lens's attribution: what that lens says the block gave.

Law: shares across depths are the blocks' own; levels give their first differences, so that the logit
lens scores blocks exactly as IG-Lens's observed shares do.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim, Unit
from lenses.errors import UnsupportedLens


def block_scores(a: Attribution, blocks: int, position: int = -1) -> Float[ndarray, " block"]:
    """The score of each block, in the attribution's unit.

    Across depths, the value at depth b + 1 is block b's (what stands at depth 0, DLA's embedding, is no
    block's), and so is a drop without the block. Levels: the difference of the readings after and before
    the block. Within each depth the totals are alike by law and tell no block from another, so what
    counts is where they stand: how much the part of the target's own position (`position`, the last by
    default) grows from depth b to depth b + 1. The first block's is that part itself, whatever of it the
    token brought along, since such a lens says nothing of depth 0. Raises `UnsupportedLens` where the
    attribution skips a depth, so that some block has no score.
    """
    levels = a.claim is Claim.LEVEL and a.unit is not Unit.DROP
    first = 0 if levels else 1
    wanted = np.arange(first, blocks + 1)
    if missing := np.setdiff1d(wanted, a.depths).tolist():
        raise UnsupportedLens(
            f"{a.lens} gives no score to each block, because its depths leave out {missing[0]} of "
            f"{first}…{blocks}: ask for all depths"
        )
    places = [int(np.flatnonzero(a.depths == depth)[0]) for depth in wanted]
    if levels:
        return np.diff(a.values[places])
    if a.claim is not Claim.WITHIN:
        return a.values[places]
    if a.positions is None:
        raise UnsupportedLens(f"{a.lens} gives no score to each block, because its positions are not told")
    return np.diff(a.positions[places, position], prepend=0.0)
