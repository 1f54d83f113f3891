"""How well the methods rank the blocks, for a page: the table's cells, the forest, and a report's section."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from lenses import charts
from lenses import validation_words as words
from lenses.findings import ABLATION
from lenses.report.figures import WIDE, Figure, figure
from lenses.validation import ALL, Validation

LABEL = 200
"""Pixels beside a forest plot for its names."""
WHERE = {"all": "at all positions", "last": "where the word is predicted"}


@dataclass(frozen=True)
class Ranked:
    """A report's section: where the blocks were skipped, what came of it, a picture if there is one, and
    the cells of its table."""

    where: str
    sentences: list[str]
    figures: list[Figure]
    rows: list[dict[str, str]]


def ranked(result: Validation | None, settings: dict[str, Any]) -> Ranked | None:
    """The section of a list that was run with ablation, and None of another."""
    if result is None:
        return None
    rows = result.rows[result.rows["subset"] == ALL]
    known = rows["spearman"].notna().any()
    return Ranked(
        WHERE[settings["lenses"][ABLATION]["positions"]],
        words.ranked(result),
        [forest("ranked", "All targets", rows, "blocks")] if known else [],
        lines(rows),
    )


def forest(name: str, title: str, rows: pd.DataFrame, by: str, lines: str = "title") -> Figure:
    """The mean rank correlations of some rows with their intervals."""
    alt = f"{title}: mean rank correlations with 95 % intervals"
    return figure(name, title, alt, partial(charts.forest, rows, by, lines=lines), WIDE - LABEL)


def lines(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Results as they are read in a table: every cell a text."""
    return [
        {
            "method": row["title"], "group": row["group"], "subset": row["subset"],
            "blocks": row["blocks"].replace("-", " "), "prompts": str(row["prompts"]),
            "ρ": number(row["spearman"]) + between(row["spearman_low"], row["spearman_high"]),
            "τ": number(row["kendall"]),
            "top 1": _part(row["top1"]), "top 3": _part(row["top3"]),
            "average precision": " / ".join(
                number(row[name]) for name in ("average_precision", "average_precision_chance")
            ),
            "onset test": f"{_part(row['onset_test'])} / {_part(row['onset_chance'])}",
            "Holm's p": _p(row["p_holm"]),
            "needed": "–" if pd.isna(row["needed"]) else f"{row['needed']:.0f}",
        }
        for row in rows.to_dict("records")
    ]  # fmt: skip


def number(value: float) -> str:
    """A correlation, with a minus sign that is one."""
    return "–" if pd.isna(value) else f"{value:.2f}".replace("-", "−")


def between(low: float, high: float) -> str:
    """An interval, or nothing where there is none."""
    return "" if pd.isna(low) else f" ({number(low)} to {number(high)})"


def _part(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.0%}"


def _p(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
