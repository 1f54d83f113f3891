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
from pyarrow.dataset import dataset
from ray.data.aggregate import Mean, Quantile

from lenses.aggregates import FAILURES, NOTABLE, ROWS
from lenses.attribution import Claim, Unit
from lenses.distributed import flat
from lenses.distributed.flat import VERDICTS
from lenses.distributed.folder import Folder
from lenses.distributed.frames import by_row, picked, plain
from lenses.distributed.onsets import onsets, partitions, quartiles
from lenses.errors import BadRun
from lenses.progress import Progress
from lenses.summary import Counts, LensSummary, Summary

GAP = -1
"""The depth that stands for the size of a gap where values are grouped."""


@dataclass(frozen=True)
class Lines:
    """The lines of a run (`flat.flat`), their columns without a line, and what all of them say of the model,
    the lenses and the lists."""

    lines: ray.data.Dataset
    none: pd.DataFrame
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


def lines(rows: ray.data.Dataset, folder: Folder, settings: dict[str, Any]) -> Lines:
    """The lines of all rows. Raises `BadRun` where a lens has other depths in one row than in another."""
    made = rows.map_batches(
        flat.flat, batch_size=None, fn_kwargs={"folder": folder, "settings": settings}
    ).materialize()
    none = flat.schema(list(settings["lenses"])).empty_table().to_pandas()
    heads = [json.loads(head) for head in picked(made, _heads, none)["head"]]
    about: dict[str, dict[str, Any]] = {}
    for head in heads:
        for name, one in head["lenses"].items():
            if about.setdefault(name, one) != one:
                raise BadRun(
                    f"{name} has other depths or options in some rows of {folder.path} than in others: "
                    "choose another folder"
                )
    about = {name: about[name] for name in settings["lenses"] if name in about}
    known = [head for head in heads if head["provenance"]]
    newest = max(known, key=lambda head: head["provenance"]["created"], default=None)
    gap = max((head["model"]["readout_gap"] or 0.0 for head in known), default=0.0)
    model = {**newest["model"], "readout_gap": gap} if newest else dict(settings["model"])
    own = dict.fromkeys(name for head in heads for name in head["own"])
    return Lines(
        made, none, settings, model, newest["provenance"] if newest else {}, about, _called(list(own))
    )


def write(found: Lines, folder: Path) -> Generator[Progress, None, None]:
    """The folders `results` and `summary`, of Parquet files. Raises `BadRun` where what the machines wrote is
    not all seen from here."""
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
    there, wanted = dataset(folder / "summary", format="parquet").count_rows(), found.lines.count()
    if there != wanted:
        raise BadRun(
            f"{folder / 'summary'} has {there} of {wanted} lines here, so a worker wrote into another folder "
            "of that name: choose a folder that all machines share"
        )


def summary(found: Lines) -> Generator[Progress, None, Summary]:
    """All that the page shows."""
    yield Progress("counting and averaging over all rows")
    names, speaking = list(found.about), found.speaking
    total = _totals(found)
    if total["missing"]:
        raise BadRun(
            f"{total['missing']} rows were run and are in no part any more: run the same with --resume"
        )
    histogram, by_group, groups, grouped = onsets(found.lines, speaking, total["rows"] - total["failed"])
    yield Progress("ranking the rows")
    notable = _notable(found)
    kept = {int(row) for frame in notable.values() for row in frame["row"]}
    listed = by_row(found.lines, partial(_listed, kept=kept, speaking=speaking), found.none)
    failures = by_row(found.lines, partial(_failures, speaking=speaking), found.none).head(FAILURES)
    yield Progress("finding the quartiles at every depth")
    bands, medians = _bands(found, total["rows"])
    titles = {name: found.about[name]["title"] for name in names}
    whole = {
        "prompts": total["rows"] - total["failed"], "probability": total["probability"],
        **quartiles(histogram), "against": total.get(f"against:{found.speaking}", math.nan),
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
    blocks = picked(found.lines, partial(_of_block, counts=counts, means=means, sizes=sizes), found.none)
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


def _bands(found: Lines, rows: int) -> tuple[dict[str, pd.DataFrame], dict[str, float]]:
    """Mean and middle half of each lens at each depth, and the median size of its gap."""
    if not found.about:
        return {}, {}
    values = found.lines.map_batches(
        _values, batch_size=None, batch_format="pandas", fn_kwargs={"about": found.about}
    )
    made = values.groupby(["lens", "depth"], num_partitions=partitions(rows)).aggregate(
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


def _notable(found: Lines) -> dict[str, pd.DataFrame]:
    """The rows that stand out, by why: columns `row`, `measure`."""
    asked = [("Most movement against the trend", f"against:{found.speaking}", True)] if found.speaking else []
    asked.append(("Lowest probability", "probability", False))
    asked.append(("Biggest disagreement between methods", "disagreement", False))
    made = {}
    for why, column, largest in asked:
        frame = by_row(found.lines, partial(_most, column=column, largest=largest), found.none)
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


def _heads(lines: pd.DataFrame) -> pd.DataFrame:
    return lines[["head"]].dropna()


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
