"""A model small enough to work out by hand: two words, two blocks, and what each method says of it.

The final norm is the identity and the head reads off the residual's two numbers as the two logits, so
that every value below can be checked with a pocket calculator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

STATES = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])
"""The residual at depths 0, 1, 2: block 0 pushes the target by 1, block 1 pushes the other word by 2."""


def worked() -> pd.DataFrame:
    """One row a depth: both logits, the target's level, IG-Lens's share and DLA's part."""
    powers = np.exp(STATES)
    level = powers[:, 0] / powers.sum(axis=1)
    return pd.DataFrame(
        {
            "depth": [0, 1, 2],
            "logit of the target": STATES[:, 0],
            "logit of the other word": STATES[:, 1],
            "logit lens: level": level,
            "IG-Lens: share": [np.nan, *np.diff(level)],
            "DLA: part of the logit": [STATES[0, 0], *np.diff(STATES[:, 0])],
        }
    )
