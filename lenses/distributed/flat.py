"""A row of a list as one line of numbers: made by tasks of Ray out of the parts, a block of rows at a time.

A block's outcomes become `Findings`, as those of a whole list would on one machine; each lens has columns of
its own in the line, since which of them speaks for a row is known only when all blocks are.
"""

from __future__ import annotations

import json
import pickle
from itertools import combinations, groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from lenses import aggregates, parts
from lenses.attribution import Verdict
from lenses.batch import window
from lenses.distributed.folder import Folder
from lenses.findings import COLUMNS, NOT_RUN, Findings, Gathering, LensFindings, against
from lenses.onset import onset
from lenses.report.tables import RESULTS

TEXTS = ("id", "group", "prompt", "target", "warnings", "failure", "extra")
VERDICTS = tuple(verdict.value for verdict in Verdict)


def pairs(names: list[str]) -> list[str]:
    """The columns of the rank correlations of any two lenses."""
    return [f"rank:{one}|{other}" for one, other in combinations(names, 2)]


def flat(block: dict[str, np.ndarray], folder: Folder, settings: dict[str, Any]) -> pa.Table:
    """A line for each row of the block. `head`, in the first of them, is JSON of what the block says of the
    model, its lenses and the file's own columns. Raises `BadRun` where the folder is not seen from here."""
    folder.seen()
    rows = sorted((pickle.loads(data) for data in block["data"]), key=lambda row: row.row)
    gathering = Gathering(settings)
    for number, group in groupby(rows, key=lambda row: window(row.row)):
        known = parts.of_window(folder.parts, number)
        for row in group:
            gathering.add(parts.read(row, known.get(row.row)))
    found, names = gathering.findings(), list(settings["lenses"])
    frame = found.rows.assign(extra=[json.dumps(extra) for extra in found.rows["extra"]]).set_index("row")
    lines = frame[["line", *TEXTS, "probability"]].copy()
    lines["failed"] = (lines["failure"] != "").astype(int)
    lines["missing"] = (lines["failure"] == NOT_RUN).astype(int)
    lines["probable"] = (lines["probability"] >= 0.5).astype(int)
    by_name = {lens.lens: lens for lens in found.lenses}
    for name in names:
        _add(lines, name, by_name.get(name))
    correlated = aggregates.rank_correlations
    ranks = {
        f"rank:{one}|{other}": correlated(by_name[one], by_name[other]).set_index("row")["rank"]
        for one, other in combinations(names, 2)
        if one in by_name and other in by_name
    }
    for column in pairs(names):
        lines[column] = ranks[column].reindex(lines.index) if column in ranks else np.nan
    lines["disagreement"] = lines[pairs(names)].mean(axis=1) if len(names) > 1 else np.nan
    lines["head"] = [_head(found), *[None] * (len(lines) - 1)]
    return pa.Table.from_pandas(lines.reset_index(), schema(names), preserve_index=False)


def _add(lines: pd.DataFrame, name: str, lens: LensFindings | None) -> None:
    """What a lens says of each row; nothing of rows from which it was left out."""
    columns: dict[str, Any] = {
        "delta": [],
        "gap": [],
        "onset": [],
        "against": [],
        "verdict": [],
        "values": [],
    }
    if lens is not None:
        columns |= {"delta": lens.changes, "gap": lens.gaps, "verdict": lens.verdicts}
        columns["values"] = list(lens.values)
        ledger = lens.keeps_ledger
        columns["onset"] = [onset(lens.depths, v) if ledger else None for v in lens.values]
        columns["against"] = [against(v) if ledger else np.nan for v in lens.values]
    index = pd.Index([] if lens is None else lens.rows)
    told = pd.DataFrame({key: pd.Series(value, index, dtype="object") for key, value in columns.items()})
    told = told.reindex(lines.index)
    for key in ("delta", "gap", "against"):
        lines[f"{key}:{name}"] = told[key].astype("float64")
    lines[f"size:{name}"] = lines[f"gap:{name}"].abs()
    lines[f"onset:{name}"] = told["onset"].astype("Int64")
    for key in ("verdict", "values"):
        lines[f"{key}:{name}"] = told[key]
    for verdict in VERDICTS:
        lines[f"{verdict}:{name}"] = (told["verdict"] == verdict).astype(int)


def schema(names: list[str]) -> pa.Schema:
    """The columns of the lines of a run with these lenses."""
    number, count, text = pa.float64(), pa.int64(), pa.string()
    fields: list[tuple[str, pa.DataType]] = [("row", count), ("line", count)]
    fields += [(name, text) for name in TEXTS] + [("probability", number)]
    fields += [(name, count) for name in ("failed", "missing", "probable")]
    for name in names:
        fields += [(f"{key}:{name}", number) for key in ("delta", "gap", "against", "size")]
        fields += [(f"onset:{name}", count), (f"verdict:{name}", text)]
        fields += [(f"values:{name}", pa.list_(number))]
        fields += [(f"{verdict}:{name}", count) for verdict in VERDICTS]
    fields += [(column, number) for column in (*pairs(names), "disagreement")]
    return pa.schema([*fields, ("head", text)])


def _head(found: Findings) -> str:
    about = {
        lens.lens: {
            "title": lens.title, "unit": lens.unit.value, "claim": lens.claim.value,
            "options": lens.options, "depths": lens.depths.tolist(),
        }
        for lens in found.lenses
    }  # fmt: skip
    own = list(dict.fromkeys(name for extra in found.rows["extra"] for name in extra))
    return json.dumps(
        {"model": found.model, "provenance": found.provenance, "lenses": about, "own": own},
        default=list,
    )


def tidy(lines: pd.DataFrame, about: dict[str, dict[str, Any]]) -> pa.Table:
    """The lines as `results.parquet` has them: one a prompt, lens and depth."""
    frames = []
    for name, lens in about.items():
        known = lines[lines[f"values:{name}"].notna()]
        times = len(lens["depths"])
        frame = known[["row", "id", "group", "prompt", "target"]].loc[known.index.repeat(times)]
        values = np.concatenate([np.array([]), *known[f"values:{name}"]])
        frames.append(
            frame.assign(
                lens=name, depth=np.tile(lens["depths"], len(known)).astype(int), unit=lens["unit"],
                value=values,
            )
        )  # fmt: skip
    whole = (
        pd.concat(frames).sort_values("row", kind="stable") if frames else pd.DataFrame(columns=RESULTS.names)
    )
    return pa.Table.from_pandas(whole[RESULTS.names], RESULTS, preserve_index=False)


def shown(lines: pd.DataFrame, speaking: str | None) -> pd.DataFrame:
    """The lines in the columns of a report's rows, with the numbers of the lens that speaks for all."""
    frame = lines[["row", "line", *TEXTS, "probability"]].copy()
    for key in ("delta", "onset", "against", "gap", "verdict"):
        frame[key] = lines[f"{key}:{speaking}"] if speaking else None
    floats = dict.fromkeys(("probability", "delta", "gap", "against"), "float64")
    frame = frame.astype({**floats, "onset": "Int64", "verdict": "string"})
    return frame[[*COLUMNS, "against", "extra"]]


def summarized(lines: pd.DataFrame, speaking: str | None, own: dict[str, str]) -> pa.Table:
    """The lines as `summary.csv` has them; `own` gives the file's own columns their names there."""
    frame = shown(lines, speaking)
    extras = [json.loads(extra) for extra in frame["extra"]]
    frame = frame[list(COLUMNS)]
    for name, called in own.items():
        frame[called] = [extra.get(name, "") for extra in extras]
    numbers = {"row": pa.int64(), "line": pa.int64(), "onset": pa.int64()}
    numbers |= dict.fromkeys(("probability", "delta", "gap"), pa.float64())
    schema = pa.schema([(name, numbers.get(name, pa.string())) for name in map(str, frame)])
    return pa.Table.from_pandas(frame, schema, preserve_index=False)
