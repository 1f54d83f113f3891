"""A list's findings as a few tables and sentences: what adds up, where answers set in, what stands out."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from lenses import summary
from lenses.findings import NOT_RUN, Findings, LensFindings
from lenses.registry import CLAIMS
from lenses.summary import Counts, LensSummary, Summary

NOTABLE = 10
"""Rows in each list of what stands out."""
ROWS, FAILURES = 2000, 500
"""Prompts, and failures, that a report lists."""
GROUPS = 20
"""Groups that are shown, the largest."""


def summarized(findings: Findings) -> Summary:
    """All that a report shows of the findings."""
    shown = notable(findings)
    first = findings.rows["row"].head(ROWS).tolist()
    kept = {*first, *(int(row) for frame in shown.values() for row in frame["row"])}
    return Summary(
        counts(findings), findings.provenance, {lens.lens: band(lens) for lens in findings.lenses},
        onsets(findings), onset_groups(findings), groups(findings), len(findings.groups),
        agreement(findings), shown, findings.rows[findings.rows["row"].isin(kept)],
        findings.failed.head(FAILURES), findings.validation,
    )  # fmt: skip


def counts(findings: Findings) -> Counts:
    """The numbers in the report's sentences."""
    known, failed = findings.explained, findings.failed
    return Counts(
        findings.settings, findings.model, len(findings.rows), len(failed),
        int((failed["failure"] == NOT_RUN).sum()), int((known["probability"] >= 0.5).sum()),
        whole(findings), tuple(map(summary_of, findings.lenses)),
    )  # fmt: skip


def summary_of(lens: LensFindings) -> LensSummary:
    """What is shown of a lens beside its values."""
    sizes = pd.Series(np.abs(lens.gaps)).dropna()
    return LensSummary(
        lens.lens, lens.title, lens.unit, lens.claim, lens.options, lens.depths, len(lens.rows),
        dict(Counter(lens.verdicts)), float(sizes.max()), float(sizes.median()),
    )  # fmt: skip


def additivity(findings: Findings) -> pd.DataFrame:
    """One row a lens: its claim, how many prompts got which verdict, and the worst and the median gap."""
    return summary.additivity(counts(findings), CLAIMS)


def sentences(findings: Findings) -> list[str]:
    """The report in a few plain sentences."""
    return summary.sentences(counts(findings))


def onsets(findings: Findings) -> pd.DataFrame:
    """How many prompts' answers set in at each depth: columns `depth`, `prompts`, `part` (of all)."""
    counts = findings.explained["onset"].dropna().astype(int).value_counts().sort_index()
    frame = counts.rename_axis("depth").rename("prompts").reset_index()
    return frame.assign(part=frame["prompts"] / max(1, frame["prompts"].sum()))


def onset_groups(findings: Findings) -> pd.DataFrame:
    """The same with a column `group`, of the `GROUPS` largest groups, each group's parts its own."""
    shown = groups(findings)["group"].tolist()
    known = findings.explained.dropna(subset=["onset"])
    known = known[known["group"].isin(shown)]
    counts = known.groupby(["group", "onset"], sort=False).size()
    frame = counts.rename("prompts").reset_index().rename(columns={"onset": "depth"})
    whole = frame.groupby("group")["prompts"].transform("sum")
    order = {group: k for k, group in enumerate(shown)}
    frame = frame.assign(depth=frame["depth"].astype(int), part=frame["prompts"] / whole)
    return frame.sort_values("group", key=lambda names: names.map(order), kind="stable")


def groups(findings: Findings) -> pd.DataFrame:
    """One row a group, the `GROUPS` largest in the list's order: its prompts, and the means and quartiles
    that `whole` gives of all."""
    named = findings.explained[findings.explained["group"] != ""]
    largest = named["group"].value_counts(sort=True).head(GROUPS).index
    parts = named[named["group"].isin(largest)].groupby("group", sort=False)
    lines = [{"group": name, **_summed(part)} for name, part in parts]
    return pd.DataFrame(lines, columns=["group", *_summed(named)])


def whole(findings: Findings) -> dict[str, Any]:
    """Of all explained prompts: how many, mean probability, the onset's quartiles, mean movement against
    the trend."""
    return _summed(findings.explained)


def _summed(part: pd.DataFrame) -> dict[str, Any]:
    low, middle, high = quartiles(part["onset"])
    return {
        "prompts": len(part), "probability": part["probability"].mean(),
        "low": low, "onset": middle, "high": high, "against": part["against"].mean(),
    }  # fmt: skip


def quartiles(onset: pd.Series) -> tuple[float, float, float]:
    """The least depths by which a quarter, half and three quarters of the onsets have come."""
    known = onset.dropna().to_numpy(dtype=float)
    if not len(known):
        return math.nan, math.nan, math.nan
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75], method="inverted_cdf").tolist()
    return low, middle, high


def band(lens: LensFindings) -> pd.DataFrame:
    """One row a depth: the mean of the lens's values over all prompts, and their middle half.

    Values that are no numbers are left out.
    """
    frame = pd.DataFrame(lens.values)
    low, high = (frame.quantile(part).to_numpy() for part in (0.25, 0.75))
    return pd.DataFrame({"depth": lens.depths, "mean": frame.mean().to_numpy(), "low": low, "high": high})


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
        "Most movement against the trend": _most(known[known["against"] > 0], "against", largest=True),
        "Lowest probability": _most(known, "probability", largest=False),
    }
    pairs = [rank_correlations(one, other) for one, other in combinations(findings.lenses, 2)]
    if pairs:
        least = pd.concat(pairs).groupby("row")["rank"].mean().rename("measure").reset_index()
        found["Biggest disagreement between methods"] = least.nsmallest(NOTABLE, "measure")
    return {why: frame for why, frame in found.items() if len(frame)}


def _ranks(values: Float[ndarray, "prompt depth"]) -> Float[ndarray, "prompt depth"]:
    """Each row's ranks, their mean taken out; ties share theirs."""
    ranks = pd.DataFrame(values).rank(axis=1).to_numpy()
    return ranks - ranks.mean(axis=1, keepdims=True)


def _most(rows: pd.DataFrame, column: str, largest: bool) -> pd.DataFrame:
    chosen = rows.dropna(subset=[column]).sort_values(column, ascending=not largest, kind="stable")
    return chosen.head(NOTABLE)[["row", column]].rename(columns={column: "measure"})
