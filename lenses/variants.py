"""The kinds of planted models in words, and what the methods made of them, as a table; no torch.

`assets/planted.csv` holds `grading.score` of all registered lenses on twenty models a variant, and the
README the same; `python -m tests.test_planted` measures both anew. See `lenses.planted` for the models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pandas as pd

Variant = Literal["single", "shared", "erased", "routed", "hidden"]

VARIANTS: dict[Variant, str] = {
    "single": "one block writes the answer",
    "shared": "two blocks write half of the answer each",
    "erased": "one block writes the answer, a later one takes a part of it away again",
    "routed": "one block fetches the answer from another position",
    "hidden": "one block writes the answer in a code that the head can't read, a later one translates it",
}
"""What happens in each, in plain words."""

ABLATION = "ablation (skip)"
CHANCE = "chance"
TITLES = {ABLATION: "Skipping each block", CHANCE: "Chance"}
"""What stands below the lenses: the drops of the target's probability, and what no knowledge gives."""
FILE = "planted.csv"


def measured(assets: Path) -> pd.DataFrame:
    """What was measured, in the columns of `grading.score`."""
    return pd.read_csv(assets / FILE)
