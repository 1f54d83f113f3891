"""What a run came to, by Ray Data: no machine ever holds the numbers of all rows, and the driver few of them.

Law: the `Summary` that `aggregates.summarized` makes of the same outcomes in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
import ray.data
from ray.data.aggregate import Count, Mean, Min, Quantile, ValueCounter

from lenses.aggregates import FAILURES, GROUPS, NOTABLE, ROWS
from lenses.attribution import Claim, Unit
from lenses.distributed import flat
from lenses.distributed.flat import VERDICTS
from lenses.distributed.frames import by_row, picked, plain
from lenses.progress import Progress
from lenses.summary import Counts, LensSummary, Summary

PARTITIONS = 16
"""Parts in which values are grouped, at most."""
GAP = -1
"""The depth that stands for the size of a gap where values are grouped."""


@dataclass(frozen=True)
class Lines:
    """The lines of a run (`flat.flat`), and what all of them say of the model, the lenses and the lists."""

    lines: ray.data.Dataset
    settings: dict[str, Any]
    model: dict[str, Any]
    provenance: dict[str, Any]
    about: dict[str, dict[str, Any]]
    own: dict[str, str]

    @property
    def speaking(self) -> str | None:
        """The lens whose numbers stand for a row: the first that keeps a ledger, else the first."""
        ledgers = [
            name
            for name, one in self.about.items()
            if one["claim"] == Claim.ACROSS and one["unit"] == Unit.PROBABILITY
        ]
        return next(iter([*ledgers, *self.about]), None)


def lines(rows: ray.data.Dataset, parts: Path, settings: dict[str, Any]) -> Lines:
    """The lines of all rows. Raises `ValueError` where a lens has other depths in one row than in another."""
    made = rows.map_batches(
        flat.flat, batch_size=None, fn_kwargs={"folder": str(parts), "settings": settings}
    ).materialize()
    heads = [json.loads(one["head"]) for one in _column(made, "head") if one["head"] is not None]
    about: dict[str, dict[str, Any]] = {}
    for head in heads:
        for name, one in head["lenses"].items():
            if about.setdefault(name, one) != one:
                raise ValueError(f"{name} has other depths or options in some rows than in others")
    about = {name: about[name] for name in settings["lenses"] if name in about}
    known = [head for head in heads if head["provenance"]]
    newest = max(known, key=lambda head: head["provenance"]["created"], default=None)
    gap = max((head["model"]["readout_gap"] or 0.0 for head in known), default=0.0)
    model = {**newest["model"], "readout_gap": gap} if newest else dict(settings["model"])
    own = dict.fromkeys(name for head in heads for name in head["own"])
    return Lines(made, settings, model, newest["provenance"] if newest else {}, about, _called(list(own)))


def write(found: Lines, folder: Path) -> Generator[Progress, None, None]:
    """The folders `results` and `summary`, of Parquet files."""
    about, speaking = found.about, found.speaking
    yield Progress("writing results/")
    tidied = found.lines.map_batches(
        flat.tidy, batch_size=None, batch_format="pandas", fn_kwargs={"about": about}
    )
    tidied.write_parquet(str(folder / "results"))
    yield Progress("writing summary/")
    found.lines.map_batches(
        flat.summarized, batch_size=None, batch_format="pandas",
        fn_kwargs={"speaking": speaking, "own": found.own},
    ).write_parquet(str(folder / "summary"))  # fmt: skip


def summary(found: Lines) -> Generator[Progress, None, Summary]:
    """All that the page shows."""
    yield Progress("counting and averaging over all rows")
    names, speaking = list(found.about), found.speaking
    total = _totals(found)
    histogram, by_group, groups, grouped = _onsets(found)
    yield Progress("ranking the rows")
    notable = _notable(found)
    kept = {int(row) for frame in notable.values() for row in frame["row"]}
    listed = by_row(found.lines, partial(_listed, kept=kept, speaking=speaking))
    failures = by_row(found.lines, partial(_failures, speaking=speaking)).head(FAILURES)
    yield Progress("finding the quartiles at every depth")
    bands, medians = _bands(found)
    titles = {name: found.about[name]["title"] for name in names}
    whole = {
        "prompts": total["rows"] - total["failed"], "probability": total["probability"],
        **_quartiles(histogram), "against": total.get(f"against:{found.speaking}", math.nan),
    }  # fmt: skip
    counts = Counts(
        found.settings, found.model, total["rows"], total["failed"], total["missing"], total["probable"],
        whole, tuple(_lens(name, found.about[name], total, medians[name]) for name in names),
    )  # fmt: skip
    return Summary(
        counts, found.provenance, bands, histogram, by_group, groups, grouped,
        _agreement(titles, total), notable, listed, failures,
    )  # fmt: skip


def _totals(found: Lines) -> dict[str, Any]:
    """Counts, means and largest gaps over all lines, by the name of their column."""
    names = list(found.about)
    means = ["probability", *flat.pairs(names)]
    means += [f"against:{found.speaking}"] if found.speaking else []
    counts = ["failed", "missing", "probable", *(f"{v}:{name}" for v in VERDICTS for name in names)]
    sizes = [f"size:{name}" for name in names]
    blocks = picked(found.lines, partial(_of_block, counts=counts, means=means, sizes=sizes))
    total: dict[str, Any] = {name: int(blocks[name].sum()) for name in ("rows", *counts)}
    for name in means:
        known = blocks[f"known:{name}"].sum()
        total[name] = math.fsum(blocks[name]) / known if known else math.nan
    return {**total, **{name: float(blocks[name].max()) for name in sizes}}


def _of_block(lines: pd.DataFrame, counts: list[str], means: list[str], sizes: list[str]) -> pd.DataFrame:
    """One line of sums and largest values, and of how many values there are of what is averaged."""
    line: dict[str, Any] = {"rows": len(lines), **{name: lines[name].sum() for name in counts}}
    line |= {name: lines[name].sum() for name in means} | {name: lines[name].max() for name in sizes}
    return pd.DataFrame([line | {f"known:{name}": lines[name].notna().sum() for name in means}])


def _lens(name: str, about: dict[str, Any], total: dict[str, Any], median: float) -> LensSummary:
    verdicts = {verdict: total[f"{verdict}:{name}"] for verdict in VERDICTS}
    return LensSummary(
        name, about["title"], Unit(about["unit"]), Claim(about["claim"]), about["options"],
        np.array(about["depths"]), sum(verdicts.values()), verdicts,
        total[f"size:{name}"], median,
    )  # fmt: skip


def _agreement(titles: dict[str, str], total: dict[str, Any]) -> pd.DataFrame:
    table = pd.DataFrame(np.eye(len(titles)), index=list(titles.values()), columns=list(titles.values()))
    for pair in flat.pairs(list(titles)):
        one, other = (titles[name] for name in pair.removeprefix("rank:").split("|"))
        table.loc[one, other] = table.loc[other, one] = total[pair]
    return table


def _bands(found: Lines) -> tuple[dict[str, pd.DataFrame], dict[str, float]]:
    """Mean and middle half of each lens at each depth, and the median size of its gap."""
    if not found.about:
        return {}, {}
    values = found.lines.map_batches(
        _values, batch_size=None, batch_format="pandas", fn_kwargs={"about": found.about}
    )
    made = values.groupby(["lens", "depth"], num_partitions=_partitions()).aggregate(
        Mean("value", alias_name="mean"), Quantile("value", 0.25, alias_name="low"),
        Quantile("value", 0.5, alias_name="middle"), Quantile("value", 0.75, alias_name="high"),
    )  # fmt: skip
    frame = plain(made.to_pandas()).sort_values("depth")
    gaps = frame[frame["depth"] == GAP].set_index("lens")["middle"]
    bands = {}
    for name, about in found.about.items():
        own = frame[frame["lens"] == name].set_index("depth")[["mean", "low", "high"]]
        bands[name] = own.reindex(about["depths"]).rename_axis("depth").reset_index()
    return bands, {name: float(gaps.get(name, math.nan)) for name in found.about}


def _values(lines: pd.DataFrame, about: dict[str, dict[str, Any]]) -> pa.Table:
    """The values of each lens and depth, and the sizes of its gaps at the depth `GAP`."""
    values = flat.tidy(lines, about).select(["lens", "depth", "value"]).to_pandas()
    sizes = [
        pd.DataFrame({"lens": name, "depth": GAP, "value": lines[f"size:{name}"].dropna()}) for name in about
    ]
    schema = pa.schema([("lens", pa.string()), ("depth", pa.int64()), ("value", pa.float64())])
    return pa.Table.from_pandas(pd.concat([values.dropna(), *sizes]), schema, preserve_index=False)


def _onsets(found: Lines) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, int]:
    """The tables `onsets`, `onset_groups` and `groups` of `aggregates`, and how many groups there are."""
    known = found.lines.map_batches(
        _explained, batch_size=None, batch_format="pandas", fn_kwargs={"speaking": found.speaking}
    )
    groups = known.groupby("group", num_partitions=_partitions()).aggregate(
        Count(alias_name="prompts"), Min("row", alias_name="first"),
        Mean("probability", alias_name="probability"), Mean("against", alias_name="against"),
        ValueCounter("depth", alias_name="depths"),
    ).materialize()  # fmt: skip
    histogram = _histogram(picked(groups, _depths))
    largest = picked(groups, _largest)
    columns = ["group", "prompts", "probability", "low", "onset", "high", "against"]
    if largest.empty:
        empty = pd.DataFrame(columns=["group", "depth", "prompts", "part"])
        return histogram, empty, pd.DataFrame(columns=columns), 0
    shown = largest.sort_values(["prompts", "first"], ascending=[False, True]).head(GROUPS)
    shown = shown.sort_values("first").reset_index(drop=True)
    each = [_histogram(_depths(shown.iloc[[k]])).assign(group=name) for k, name in enumerate(shown["group"])]
    table = pd.concat([shown, pd.DataFrame(map(_quartiles, each))], axis=1)[columns]
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


def _partitions() -> int:
    """No more parts than CPUs: each is an actor of its own."""
    return max(1, min(PARTITIONS, int(ray.cluster_resources().get("CPU", 1))))


def _quartiles(histogram: pd.DataFrame) -> dict[str, float]:
    """The least depths by which a quarter, half and three quarters of the onsets have come."""
    if histogram.empty:
        return dict.fromkeys(("low", "onset", "high"), math.nan)
    depths, counts = (histogram[name].to_numpy(dtype=float) for name in ("depth", "prompts"))
    found = np.quantile(depths, [0.25, 0.5, 0.75], weights=counts, method="inverted_cdf")
    return dict(zip(("low", "onset", "high"), found.tolist(), strict=True))


def _notable(found: Lines) -> dict[str, pd.DataFrame]:
    """The rows that stand out, by why: columns `row`, `measure`."""
    asked = [("Most movement against the trend", f"against:{found.speaking}", True)] if found.speaking else []
    asked.append(("Lowest probability", "probability", False))
    asked.append(("Biggest disagreement between methods", "disagreement", False))
    made = {}
    for why, column, largest in asked:
        frame = by_row(found.lines, partial(_most, column=column, largest=largest))
        frame = frame.sort_values(["measure", "row"], ascending=[not largest, True]).head(NOTABLE)
        if len(frame):
            made[why] = frame.reset_index(drop=True)
    return made


def _most(lines: pd.DataFrame, column: str, largest: bool) -> pd.DataFrame:
    known = lines[["row", column]].dropna().rename(columns={column: "measure"})
    known = known[known["measure"] > 0] if largest else known
    return known.sort_values(["measure", "row"], ascending=[not largest, True]).head(NOTABLE)


def _listed(lines: pd.DataFrame, kept: set[int], speaking: str | None) -> pd.DataFrame:
    return flat.shown(lines[(lines["row"] <= ROWS) | lines["row"].isin(kept)], speaking)


def _failures(lines: pd.DataFrame, speaking: str | None) -> pd.DataFrame:
    return flat.shown(lines[lines["failed"] == 1].head(FAILURES), speaking)


def _explained(lines: pd.DataFrame, speaking: str | None) -> pd.DataFrame:
    known = lines[lines["failed"] == 0]
    numbers = {
        "depth": known[f"onset:{speaking}"] if speaking else math.nan,
        "against": known[f"against:{speaking}"] if speaking else math.nan,
    }
    return known[["row", "group", "probability"]].assign(**numbers).astype({"depth": "float64"})


def _column(lines: ray.data.Dataset, name: str) -> Any:
    return lines.select_columns([name]).iter_rows()


def _called(own: list[str]) -> dict[str, str]:
    """The file's own columns by what they are called in `summary`, where none is called like ours."""
    from lenses.findings import COLUMNS

    taken, called = set(COLUMNS), {}
    for name in own:
        free = name
        while free in taken:
            free = f"{free} (file)"
        taken.add(free)
        called[name] = free
    return called
