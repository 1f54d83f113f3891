"""`validation.html`: how far each method ranks the blocks as skipping them does; one file, offline.

Everything that a user wrote is escaped, as in `report.html`, whose look this page shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from lenses import charts
from lenses import validation_words as words
from lenses.headline import percent
from lenses.prompts.wording import counted
from lenses.report.figures import Figure, engine, figure
from lenses.report.page import HALF, HOME, WIDE, provenance
from lenses.tokens import visible
from lenses.validating import Validated
from lenses.validation import ALL, CONTROLS, Validation

GROUPS = 12
"""Groups in the chart and the table of groups, the largest; the JSON has all."""
FAILURES = 200
LABEL = 200
"""Pixels beside a forest plot for its names."""


def html(found: Validated) -> str:
    """The page."""
    result, findings = found.validation, found.findings
    return _template().render(
        title=f"Do the methods find the blocks that matter? {counted(len(findings.rows), 'prompt')} "
        f"through {findings.model['name']}",
        file=findings.settings["file"],
        tiles=_tiles(found),
        sentences=words.sentences(found),
        rows=lines(result.rows),
        groups=lines(grouped(result)),
        forests=list(_forests(result)),
        scatters=list(_scatters(result)),
        maps=list(_maps(result)),
        recall=_recall(result),
        differences=_differences(result),
        method=words.METHOD,
        caveats=words.CAVEATS,
        failures=findings.failed.head(FAILURES).to_dict("records"),
        failed=len(findings.failed),
        provenance=provenance(findings.model, findings.settings, findings.provenance),
        css=Markup((HOME / "page.css").read_text(encoding="utf-8")),
        script=Markup((HOME / "validation.js").read_text(encoding="utf-8")),
        engine=engine(),
    )  # fmt: skip


def lines(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Results as they are read in a table: every cell a text."""
    return [
        {
            "method": row["title"], "group": row["group"], "subset": row["subset"],
            "blocks": row["blocks"].replace("-", " "), "prompts": str(row["prompts"]),
            "ρ": _span(row, "spearman"), "τ": _number(row["kendall"]),
            "top 1": _part(row["top1"]), "top 3": _part(row["top3"]),
            "average precision": " / ".join(
                _number(row[name]) for name in ("average_precision", "average_precision_chance")
            ),
            "onset test": f"{_part(row['onset_test'])} / {_part(row['onset_chance'])}",
            "Holm's p": _p(row["p_holm"]),
            "needed": "–" if pd.isna(row["needed"]) else f"{row['needed']:.0f}",
        }
        for row in rows.to_dict("records")
    ]  # fmt: skip


def grouped(result: Validation) -> pd.DataFrame:
    """The results of the largest groups over all blocks, without the controls, in the list's order."""
    rows = result.groups[(result.groups["blocks"] == ALL) & ~result.groups["lens"].isin(CONTROLS)]
    sizes = result.scores.prompts["group"].value_counts(sort=True)
    largest = [group for group in sizes.index if group][:GROUPS]
    return rows[rows["group"].isin(largest)]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["visible"] = visible
    return environment.get_template("validation.html.jinja")


def _tiles(found: Validated) -> list[tuple[str, str]]:
    scores = found.validation.scores
    monotone = int(scores.subset("monotone").sum())
    return [
        (f"{len(scores.prompts)} of {len(found.findings.rows)}", "prompts with every block skipped"),
        (f"{scores.drops.size:,}".replace(",", "\u202f"), "blocks skipped in all"),
        (f"{scores.relevant.mean():.0%}", "of them matter"),
        (f"{monotone} and {len(scores.prompts) - monotone}", "targets monotone and not"),
        (percent(float(scores.prompts["probability"].mean())), "mean probability of the word"),
    ]


def _forests(result: Validation) -> Iterator[Figure]:
    def make(name: str, title: str, rows: pd.DataFrame, by: str, lines: str = "title") -> Figure:
        alt = f"{title}: mean rank correlations with 95 % intervals"
        return figure(name, title, alt, partial(charts.forest, rows, by, lines=lines), WIDE - LABEL)

    whole, rest = (result.rows[result.rows["blocks"] == blocks] for blocks in ("all", words.WITHOUT))
    yield make("blocks", "All targets", result.rows[result.rows["subset"] == ALL], "blocks")
    yield make("subsets", "Monotone targets and others, all blocks", whole, "subset")
    yield make("rest", "Monotone targets and others, without the first two blocks", rest, "subset")
    if len(groups := grouped(result)):
        yield make("groups", "By group, all blocks", groups, "title", "group")


def _scatters(result: Validation) -> Iterator[Figure]:
    for lens, title in result.scores.titles.items():
        if lens not in CONTROLS:
            yield figure(
                f"scatter-{lens}", title, f"{title}: score and drop of every block of every prompt",
                partial(charts.scatter, result.scores, lens), HALF - 70, "png",
            )  # fmt: skip


def _maps(result: Validation) -> Iterator[Figure]:
    named = {lens: title for lens, title in result.scores.titles.items() if lens not in CONTROLS}
    for lens, title in ({None: "What skipping the block costs"} | named).items():
        yield figure(
            f"map-{lens or 'drops'}", title, f"{title}: a row a prompt, a column a block",
            partial(charts.blocks_map, result.scores, lens), HALF - 40, "png",
        )  # fmt: skip


def _recall(result: Validation) -> list[Figure]:
    parts = {"All blocks": "all", "Without the first two blocks": words.WITHOUT}
    return [
        figure(
            f"recall-{blocks}", title, f"{title}: precision against recall of the blocks that matter",
            partial(charts.recall, result.curves[result.curves["blocks"] == blocks], result.scores.titles),
            HALF - 60,
        )
        for title, blocks in parts.items()
        if result.curves.loc[result.curves["blocks"] == blocks, "precision"].notna().any()
    ]  # fmt: skip


def _differences(result: Validation) -> list[dict[str, str]]:
    titles = result.scores.titles
    return [
        {
            "one": titles[line["lens"]], "other": titles[line["other"]],
            "blocks": line["blocks"].replace("-", " "),
            "by": _number(line["mean"]) + _between(line["low"], line["high"]),
        }
        for line in result.differences.to_dict("records")
    ]  # fmt: skip


def _span(row: dict[Any, Any], name: str) -> str:
    return _number(row[name]) + _between(row[f"{name}_low"], row[f"{name}_high"])


def _between(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" ({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.2f}".replace("-", "−")


def _part(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.0%}"


def _p(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
