"""What is picked of each block of a dataset, brought together as one small frame of plain numbers."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import ray.data


def by_row(lines: ray.data.Dataset, pick: Any, none: pd.DataFrame) -> pd.DataFrame:
    """What is picked of each block, together, by row: `pick` takes few of them."""
    return picked(lines, pick, none).sort_values("row", kind="stable").reset_index(drop=True)


def picked(lines: ray.data.Dataset, pick: Any, none: pd.DataFrame) -> pd.DataFrame:
    """What is picked of each block, together; `none` has the columns of the lines and no line, of which is
    picked where there is nothing else: Ray leaves out blocks that are empty."""
    chosen = lines.map_batches(pick, batch_size=None, batch_format="pandas")
    frames = list(chosen.iter_batches(batch_size=None, batch_format="pandas"))
    return plain(pd.concat(frames or [pick(none)], ignore_index=True))


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as NumPy has them, and not Arrow, where one that is missing is another thing than no number."""
    floats = {
        name: column.to_numpy(dtype=float, na_value=math.nan)
        for name, column in frame.items()
        if isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind == "f"
    }
    return frame.assign(**{str(name): values for name, values in floats.items()})
