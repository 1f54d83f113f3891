"""From comparisons, one after another, to `validation.Scores`: what each lens says of each block, and what
the target loses without it.

Law: what is gathered of a prompt hangs on its own comparison alone. Two controls are always there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim, Unit
from lenses.block_scores import block_scores
from lenses.outcome import Comparison
from lenses.prompts import Row
from lenses.validation import CONTROLS, Scores, swing

ABOUT = ("row", "id", "group", "prompt", "target", "probability", "swing")


class Scoring:
    """Gathers the scores of `lenses` (their titles by name; what has none gets that of its results), held
    against the drops of the attribution named `drops`.

    `levels` names the one whose readings tell whether a target is monotone; without a name it is the first
    that says the target's probability at every depth, and where none does the swing is not a number.
    """

    def __init__(self, drops: str, lenses: Mapping[str, str], levels: str = "") -> None:
        self._drops, self._levels = drops, levels
        self._titles = dict(lenses)
        self._lines: list[tuple[object, ...]] = []
        self._lost: list[Float[ndarray, " block"]] = []
        self._values: dict[str, list[Float[ndarray, " block"]]] = {name: [] for name in (*lenses, *CONTROLS)}

    def add(self, row: Row, found: Comparison) -> None:
        """A prompt's comparison; one in which the drops are missing is left out."""
        results = {result.attribution.lens: result for result in found.results}
        if self._drops not in results:
            return
        lost = results[self._drops].attribution.values
        self._lost.append(lost)
        read = (results[name].attribution for name in ([self._levels] if self._levels else results))
        paths = (path for a in read if (path := _path(a, len(lost))) is not None)
        moved = next((swing(path) for path in paths), np.nan)
        self._lines.append(
            (row.row, row.id, row.group, row.prompt, found.target_text, found.probability, moved)
        )
        for name in self._titles:
            result = results.get(name)
            if result is not None and not self._titles[name]:
                self._titles[name] = result.title
            self._values[name].append(
                np.full(len(lost), np.nan) if result is None
                else block_scores(result.attribution, len(lost), found.target.position)
            )  # fmt: skip
        self._values["random"].append(np.random.default_rng(row.row).standard_normal(len(lost)))
        self._values["depth"].append(np.arange(len(lost), dtype=float))

    def scores(self) -> Scores | None:
        """What there is by now; None where it is nothing."""
        if not self._lost:
            return None
        titles = {name: title or name for name, title in self._titles.items()} | CONTROLS
        return Scores(
            pd.DataFrame(self._lines, columns=list(ABOUT)),
            titles,
            np.array([self._values[name] for name in titles]),
            np.array(self._lost),
        )


def _path(a: Attribution, blocks: int) -> Float[ndarray, " depth"] | None:
    """The target's probability at every depth, where an attribution tells it."""
    if a.unit is not Unit.PROBABILITY:
        return None
    if a.claim is Claim.LEVEL and len(a.depths) == blocks + 1:
        return a.values
    if a.claim is Claim.ACROSS and a.depths.tolist() == list(range(1, blocks + 1)):
        return a.start + np.concatenate([[0.0], a.values.cumsum()])
    return None
