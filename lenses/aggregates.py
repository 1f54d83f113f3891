"""A list's findings as a few tables and sentences: what adds up, where answers set in, what stands out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Claim, Verdict
from lenses.findings import NOT_RUN, Findings, LensFindings
from lenses.headline import percent
from lenses.registry import CLAIMS

NOTABLE = 10
"""Rows in each list of what stands out."""
ALL = "all"
"""The name of everything beside the groups."""


def additivity(findings: Findings) -> pd.DataFrame:
    """One row a lens: its claim, how many prompts got which verdict, and the worst and the median gap."""
    lines = []
    for lens in findings.lenses:
        claimed = lens.claim is not Claim.LEVEL
        line: dict[str, Any] = {
            "lens": lens.title, "unit": lens.unit.value, "claim": CLAIMS[lens.claim],
            "prompts": len(lens.rows),
        }  # fmt: skip
        line |= {verdict.value: lens.verdicts.count(verdict.value) for verdict in Verdict}
        line["worst"] = float(lens.gaps.max()) if claimed else np.nan
        line["median"] = float(np.median(lens.gaps)) if claimed else np.nan
        lines.append(line)
    return pd.DataFrame(lines)


def onsets(findings: Findings) -> pd.DataFrame:
    """How the onset depths are spread: columns `group`, `depth`, `prompts`, `part` (of its group)."""
    known = findings.explained.dropna(subset=["onset"])
    frames = [known.assign(group=ALL)]
    if findings.groups:
        frames.append(known[known["group"] != ""])
    counts = pd.concat(frames).groupby(["group", "onset"], sort=False).size()
    frame = counts.rename("prompts").reset_index().rename(columns={"onset": "depth"})
    whole = frame.groupby("group")["prompts"].transform("sum")
    return frame.assign(depth=frame["depth"].astype(int), part=frame["prompts"] / whole)


def groups(findings: Findings) -> pd.DataFrame:
    """One row a group, and one for all: prompts, mean probability, and the onset's quartiles."""
    known = findings.explained
    parts = {ALL: known} | {group: known[known["group"] == group] for group in findings.groups}
    lines = []
    for name, part in parts.items():
        low, middle, high = (
            part["onset"].astype("float64").quantile([0.25, 0.5, 0.75], interpolation="lower").tolist()
        )
        lines.append({
            "group": name, "prompts": len(part), "probability": part["probability"].mean(),
            "low": low, "onset": middle, "high": high, "against": part["against"].mean(),
        })  # fmt: skip
    return pd.DataFrame(lines)


def band(lens: LensFindings) -> pd.DataFrame:
    """One row a depth: the mean of the lens's values over all prompts, and their middle half."""
    low, high = np.quantile(lens.values, [0.25, 0.75], axis=0)
    return pd.DataFrame(
        {"depth": lens.depths, "mean": lens.values.mean(axis=0), "low": low, "high": high}
    )  # fmt: skip


def agreement(findings: Findings) -> pd.DataFrame:
    """Spearman's rank correlation of two lenses over depths, its mean over prompts; by title."""
    titles = [lens.title for lens in findings.lenses]
    table = pd.DataFrame(np.eye(len(titles)), index=titles, columns=titles)
    for one, other in combinations(findings.lenses, 2):
        values = rank_correlations(one, other)["rank"]
        table.loc[one.title, other.title] = table.loc[other.title, one.title] = values.mean()
    return table


def rank_correlations(one: LensFindings, other: LensFindings) -> pd.DataFrame:
    """Columns `row`, `rank`: Spearman's correlation of two lenses' values over the depths of both.

    Depth 0 is left out, as in `tables.agreement`; a prompt without one (a lens that is the same at all
    depths) has none.
    """
    depths = np.intersect1d(one.depths, other.depths)
    depths = depths[depths > 0]
    rows = np.intersect1d(one.rows, other.rows)
    if len(depths) < 3 or not len(rows):
        return pd.DataFrame({"row": rows, "rank": np.nan})
    left, right = (
        _ranks(lens.values[np.isin(lens.rows, rows)][:, np.isin(lens.depths, depths)])
        for lens in (one, other)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        rank = (left * right).sum(axis=1) / np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return pd.DataFrame({"row": rows, "rank": rank})


def notable(findings: Findings) -> dict[str, pd.DataFrame]:
    """The rows that stand out, by why: columns `row`, `measure`."""
    known = findings.explained
    found = {
        "Most movement against the trend": _most(known, "against", largest=True),
        "Lowest probability": _most(known, "probability", largest=False),
    }
    pairs = [rank_correlations(one, other) for one, other in combinations(findings.lenses, 2)]
    if pairs:
        least = pd.concat(pairs).groupby("row")["rank"].mean().rename("measure").reset_index()
        found["Biggest disagreement between methods"] = least.nsmallest(NOTABLE, "measure")
    return {why: frame for why, frame in found.items() if len(frame)}


def sentences(findings: Findings) -> list[str]:
    """The report in a few plain sentences."""
    known, failed = findings.explained, findings.failed
    missing = int((failed["failure"] == NOT_RUN).sum())
    name = findings.model["name"]
    told = [f"{_prompts(len(findings.rows))} were asked of {name}; {len(known)} could be explained"]
    if bad := len(failed) - missing:
        told[0] += f", and {_prompts(bad)} could not: each is listed below with its reason"
    told[0] += "."
    if missing:
        told.append(f"The run was stopped: {_prompts(missing)} were not reached.")
    if not len(known):
        return told
    told.append(
        f"The word in question gets {percent(float(known['probability'].mean()))} on average, and at least "
        f"50 % in {_prompts(int((known['probability'] >= 0.5).sum()))}."
    )
    told += [_verdict(lens) for lens in findings.lenses if lens.claim is not Claim.LEVEL]
    onset = known["onset"].dropna().astype(int)
    if len(onset):
        low, middle, high = onset.quantile([0.25, 0.5, 0.75], interpolation="lower").astype(int)
        spread = f"between depths {low} and {high}" if low < high else f"at depth {middle} itself"
        told.append(
            f"The answer sets in at depth {middle} of {findings.model['blocks']} in the middle prompt, and "
            f"{spread} in at least half of them (the depth by which half of all movement of its probability "
            "has happened)."
        )
    return told


def _verdict(lens: LensFindings) -> str:
    counts = {verdict: lens.verdicts.count(verdict.value) for verdict in Verdict}
    good = counts[Verdict.EXACT] + counts[Verdict.CONVERGED]
    how = "exactly" if counts[Verdict.EXACT] else "within 1 %"
    told = (
        f"{lens.title} adds up {how} in {good} of {_prompts(len(lens.rows))} "
        f"(worst gap {lens.gaps.max():.1e} {lens.unit.value})"
    )
    if counts[Verdict.NOT_CONVERGED]:
        told += f"; in {counts[Verdict.NOT_CONVERGED]} its integral has not converged"
    if counts[Verdict.BROKEN]:
        told += f"; in {counts[Verdict.BROKEN]} it is BROKEN, which is a bug"
    return told + "."


def _ranks(values: Float[ndarray, "prompt depth"]) -> Float[ndarray, "prompt depth"]:
    """Each row's ranks, their mean taken out; ties share theirs."""
    ranks = pd.DataFrame(values).rank(axis=1).to_numpy()
    return ranks - ranks.mean(axis=1, keepdims=True)


def _most(rows: pd.DataFrame, column: str, largest: bool) -> pd.DataFrame:
    chosen = rows.dropna(subset=[column]).sort_values(column, ascending=not largest, kind="stable")
    return chosen.head(NOTABLE)[["row", column]].rename(columns={column: "measure"})


def _prompts(count: int) -> str:
    return "1 prompt" if count == 1 else f"{count} prompts"
