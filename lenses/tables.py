"""Comparisons as pandas tables; the same frames feed the terminal, the charts, the app and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from lenses.attribution import Claim
from lenses.onset import onset

if TYPE_CHECKING:
    from lenses.outcome import Comparison


def wide(comparison: Comparison) -> pd.DataFrame:
    """One row a depth, one column a lens (its name), in each lens's own unit; blank where it has none."""
    columns = {
        r.attribution.lens: pd.Series(r.attribution.values, r.attribution.depths) for r in comparison.results
    }
    return pd.DataFrame(columns).sort_index().rename_axis("depth")


def onsets(comparison: Comparison) -> dict[str, int | None]:
    """The onset depth by the shares of each lens that claims a sum across depths."""
    across = [r.attribution for r in comparison.results if r.attribution.claim is Claim.ACROSS]
    return {a.lens: onset(a.depths, a.values) for a in across}
