"""The onsets of a run, over all rows and in groups, by Ray Data.

Law: the tables that `aggregates` makes of the same outcomes in memory.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import ray
import ray.data
from ray.data.aggregate import Count, Mean, Min, ValueCounter

from lenses.aggregates import GROUPS
from lenses.distributed.frames import picked

PARTITIONS = 16
"""Parts in which values are grouped, at most."""
ROWS = 10_000
"""Rows for which another part is worth its start."""


def onsets(
    lines: ray.data.Dataset, speaking: str | None, explained: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, int]:
    """The tables `onsets`, `onset_groups` and `groups` of `aggregates`, and how many groups there are.

    The lens that is `speaking` has the onset of a row, and so many rows are `explained`.
    """
    none = pd.DataFrame(columns=["group", "prompts", "first", "probability", "against", "depths"])
    histogram, largest = _histogram(_depths(none)), _largest(none)
    if explained:  # Ray can't group nothing
        known = lines.map_batches(
            _explained, batch_size=None, batch_format="pandas", fn_kwargs={"speaking": speaking}
        )
        groups = known.groupby("group", num_partitions=partitions(explained)).aggregate(
            Count(alias_name="prompts"), Min("row", alias_name="first"),
            Mean("probability", alias_name="probability"), Mean("against", alias_name="against"),
            ValueCounter("depth", alias_name="depths"),
        ).materialize()  # fmt: skip
        histogram = _histogram(picked(groups, _depths, none))
        largest = picked(groups, _largest, none)
    columns = ["group", "prompts", "probability", "low", "onset", "high", "against"]
    if largest.empty:
        empty = pd.DataFrame(columns=["group", "depth", "prompts", "part"])
        return histogram, empty, pd.DataFrame(columns=columns), 0
    shown = largest.sort_values(["prompts", "first"], ascending=[False, True]).head(GROUPS)
    shown = shown.sort_values("first").reset_index(drop=True)
    shown = shown.astype({"probability": "float64", "against": "float64"})  # Ray's mean of nothing is None
    each = [_histogram(_depths(shown.iloc[[k]])).assign(group=name) for k, name in enumerate(shown["group"])]
    table = pd.concat([shown, pd.DataFrame(map(quartiles, each))], axis=1)[columns]
    by_group = pd.concat(each, ignore_index=True)[["group", "depth", "prompts", "part"]]
    return histogram, by_group, table, int(largest["named"].sum())


def _depths(groups: pd.DataFrame) -> pd.DataFrame:
    """How many prompts of these groups have which onset."""
    pairs = [
        (depth, count)
        for one in groups["depths"]
        for depth, count in zip(one["values"], one["counts"], strict=True)
        if depth is not None and depth == depth
    ]
    return pd.DataFrame(pairs, columns=["depth", "prompts"]).astype(int)


def _histogram(frame: pd.DataFrame) -> pd.DataFrame:
    whole = frame.groupby("depth")["prompts"].sum().reset_index().astype(int)
    return whole.assign(part=whole["prompts"] / max(1, whole["prompts"].sum()))


def _largest(groups: pd.DataFrame) -> pd.DataFrame:
    """The largest groups of a block that have a name, and in `named`, once, how many of them it has."""
    named = groups[groups["group"] != ""]
    most = named.sort_values(["prompts", "first"], ascending=[False, True]).head(GROUPS)
    return most.assign(named=[len(named), *[0] * GROUPS][: len(most)])


def quartiles(histogram: pd.DataFrame) -> dict[str, float]:
    """The least depths by which a quarter, half and three quarters of the onsets have come."""
    if histogram.empty:
        return dict.fromkeys(("low", "onset", "high"), math.nan)
    depths, counts = (histogram[name].to_numpy(dtype=float) for name in ("depth", "prompts"))
    found = np.quantile(depths, [0.25, 0.5, 0.75], weights=counts, method="inverted_cdf")
    return dict(zip(("low", "onset", "high"), found.tolist(), strict=True))


def partitions(rows: int) -> int:
    """In how many parts so many rows are grouped: each is an actor of its own, which takes seconds to start,
    and no more run at once than there are CPUs."""
    return max(1, min(PARTITIONS, rows // ROWS, int(ray.cluster_resources().get("CPU", 1))))


def _explained(lines: pd.DataFrame, speaking: str | None) -> pd.DataFrame:
    known = lines[lines["failed"] == 0]
    numbers = {
        "depth": known[f"onset:{speaking}"] if speaking else math.nan,
        "against": known[f"against:{speaking}"] if speaking else math.nan,
    }
    return known[["row", "group", "probability"]].assign(**numbers).astype({"depth": "float64"})
