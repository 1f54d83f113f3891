"""`validation.html`: how far each method ranks the blocks as skipping them does; one file, offline.

Everything that a user wrote is escaped, as in `report.html`, whose look this page shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import jinja2
import pandas as pd
from markupsafe import Markup

from lenses import charts
from lenses import validation_words as words
from lenses.headline import percent
from lenses.prompts.wording import counted
from lenses.report.figures import HALF, Figure, engine, figure
from lenses.report.page import HOME, provenance
from lenses.report.ranked import between, forest, lines, number
from lenses.tokens import visible
from lenses.validating import Validated
from lenses.validation import ALL, CONTROLS, Validation

GROUPS = 12
"""Groups in the chart and the table of groups, the largest; the JSON has all."""
FAILURES = 200


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
    whole, rest = (result.rows[result.rows["blocks"] == blocks] for blocks in ("all", words.WITHOUT))
    yield forest("blocks", "All targets", result.rows[result.rows["subset"] == ALL], "blocks")
    yield forest("subsets", "Monotone targets and others, all blocks", whole, "subset")
    yield forest("rest", "Monotone targets and others, without the first two blocks", rest, "subset")
    if len(groups := grouped(result)):
        yield forest("groups", "By group, all blocks", groups, "title", "group")


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
            "by": number(line["mean"]) + between(line["low"], line["high"]),
        }
        for line in result.differences.to_dict("records")
    ]  # fmt: skip
