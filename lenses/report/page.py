"""`report.html`: one file that opens anywhere, offline, for people who read pictures and sentences.

Pictures stand in it as pictures, so that it shows and prints without running anything; where scripts
run, they come alive, and each prompt's ledger opens by a click. Nothing is ever fetched. What a user
wrote is escaped as text by the template and, inside data, kept from ending the script it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from lenses import charts
from lenses.attribution import Verdict
from lenses.headline import percent, points
from lenses.prompts.wording import counted
from lenses.registry import CLAIMS, LENSES
from lenses.report.details import Details, definitions, panels
from lenses.report.figures import HALF, WIDE, Figure, data, engine, figure
from lenses.report.ranked import ranked
from lenses.summary import Counts, LensSummary, Summary, additivity, sentences
from lenses.tokens import visible

HOME = Path(__file__).parent
LONG = 160
"""Characters of a prompt in the table."""


@dataclass(frozen=True)
class Beside:
    """The files beside the page in which everything is: all rows, all ledgers, all failures."""

    rows: tuple[str, ...] = ("summary.csv", "results.parquet", "report.json")
    ledgers: str = "report.json"
    failures: str = "summary.csv"


def html(summary: Summary, details: Details, beside: Beside = Beside()) -> str:
    """The page."""
    counts = summary.counts
    known = summary.listed
    return _template().render(
        asked=counts.asked, failed=counts.failed, grouped=summary.grouped, beside=beside,
        title=f"{counted(counts.asked, 'prompt')} through {counts.model['name']}",
        file=counts.settings["file"],
        sentences=sentences(counts),
        tiles=_tiles(counts),
        additivity=additivity(counts, CLAIMS).to_dict("records"),
        adds_up={
            lens.title: LENSES[lens.lens].card.adds_up for lens in counts.lenses if lens.lens in LENSES
        },
        verdicts=[verdict.value for verdict in Verdict],
        whole=counts.whole,
        groups=summary.groups.to_dict("records"),
        onsets=_onset_figures(summary),
        bands=[_band(summary, lens) for lens in counts.lenses],
        agreement=_agreement(summary),
        ranked=ranked(summary.validation, counts.settings),
        notable=_notable(summary),
        rows=[_row(line, details) for line in known.to_dict("records")],
        has={name: bool((known[name] != "").any()) for name in ("id", "group")},
        details=data({"rows": details.kept, "lenses": panels(counts), "onsets": definitions()}),
        failures=summary.failures.to_dict("records"),
        provenance=provenance(counts.model, counts.settings, summary.provenance),
        css=Markup((HOME / "page.css").read_text(encoding="utf-8")),
        script=Markup((HOME / "page.js").read_text(encoding="utf-8")),
        engine=engine(),
    )  # fmt: skip


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "percent": percent, "points": points, "signed": _signed, "visible": visible, "gap": _gap,
    }  # fmt: skip
    return environment.get_template("page.html.jinja")


def _onset_figures(summary: Summary) -> list[Figure]:
    if summary.onsets.empty:
        return []
    blocks = summary.counts.model["blocks"]
    figures = [
        figure(
            "onsets",
            "All prompts",
            "A histogram of onset depths",
            lambda width: charts.onsets(summary.onsets, blocks, width=width),
            WIDE,
        )
    ]
    if summary.grouped:
        figures.append(
            figure(
                "onset-groups",
                "By group",
                "Onset depths, a row a group",
                lambda width: charts.onset_groups(summary.onset_groups, blocks, width=width),
                WIDE - 150,
            )
        )
    return figures


def _band(summary: Summary, lens: LensSummary) -> Figure:
    frame, blocks = summary.bands[lens.lens], summary.counts.model["blocks"]
    return figure(
        f"band-{lens.lens}", lens.title, f"{lens.title}: mean over all prompts at each depth",
        lambda width: charts.band(frame, lens, blocks, width=width), HALF,
    )  # fmt: skip


def _agreement(summary: Summary) -> list[Figure]:
    if len(summary.counts.lenses) < 2:
        return []
    titles = {lens.lens: lens.title for lens in summary.counts.lenses}
    return [
        figure(
            "agreement",
            "Agreement",
            "Mean rank correlations between the methods",
            lambda width: charts.square(summary.agreement, titles, width=width),
            HALF - 110,
        )
    ]


def _tiles(counts: Counts) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first."""
    whole, ledger = counts.whole, counts.ledger
    tiles = [(f"{counts.explained} of {counts.asked}", "prompts explained")]
    if counts.explained:
        tiles.append((percent(float(whole["probability"])), "mean probability of the word"))
    if whole["onset"] == whole["onset"]:
        tiles.append((f"{whole['onset']:.0f} of {counts.model['blocks']}", "middle onset depth"))
    if ledger is not None:
        exact = sum(ledger.verdicts.get(verdict, 0) for verdict in (Verdict.EXACT, Verdict.CONVERGED))
        tiles.append((f"{exact} of {ledger.prompts}", f"{ledger.title} ledgers that add up"))
    return tiles


def _notable(summary: Summary) -> list[dict[str, Any]]:
    """The rows that stand out, with what is shown of them."""
    rows = summary.listed.set_index("row")
    found = []
    for why, frame in summary.notable.items():
        lines = [
            {"row": int(row), "measure": float(measure), **rows.loc[row, ["prompt", "target"]].to_dict()}
            for row, measure in zip(frame["row"], frame["measure"], strict=True)
        ]
        found.append(
            {"why": why, "lines": lines, "correlation": "disagreement" in why, "change": "movement" in why}
        )
    return found


def _row(line: Mapping[Any, Any], details: Details) -> dict[str, Any]:
    known = not pd.isna(line["verdict"])
    return {**line} | {
        "shown": _cut(visible(line["prompt"])),
        "target": _cut(line["target"]),
        "short_id": _cut(line["id"]),
        "short_group": _cut(line["group"]),
        "state": "failed" if line["failure"] else str(line["verdict"]) if known else "left-out",
        "note": _cut(line["failure"] or line["warnings"], 4 * LONG),
        "opens": line["row"] in details.kept,
        "probability": None if pd.isna(line["probability"]) else line["probability"],
        "delta": None if pd.isna(line["delta"]) else line["delta"],
        "onset": None if pd.isna(line["onset"]) else int(line["onset"]),
    }


def provenance(
    model: dict[str, Any], asked: dict[str, Any], computed: dict[str, Any]
) -> list[tuple[str, str]]:
    """Where every number comes from, as a reader can check it: the model, the settings, and by what."""
    lenses = "; ".join(
        name + (f" ({', '.join(f'{k}: {v}' for k, v in options.items())})" if options else "")
        for name, options in asked["lenses"].items()
    )
    versions = {k: v for k, v in computed.items() if k != "created"}
    lines = [
        ("Prompt list", f"{asked['file']['name']}, {counted(asked['file']['rows'], 'row')}"),
        ("SHA-256 of the list", asked["file"]["sha256"]),
        ("Read as", asked["file"]["described"]),
        ("Model", model["name"]),
        ("Source", " ".join(filter(None, (model["source"], model["revision"])))),
        ("Numbers", f"{model['dtype']} on {model['device']}" if "device" in model else model["dtype"]),
    ]
    if "blocks" in model:
        size = f"{model['blocks']} blocks, width {model['width']}, {model['vocabulary']} tokens"
        lines += [("Size", size), ("Largest readout gap", f"{_gap(model['readout_gap'])} (probability)")]
    lines += [
        ("Methods", lenses),
        ("Software", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("Computed", f"{computed.get('created', 'nothing')} (UTC)"),
    ]
    return [(name, text) for name, text in lines if text]


def _cut(text: str, most: int = LONG) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _signed(change: float) -> str:
    """A change of probability in points, with its sign."""
    return "0" if abs(change) < 5e-5 else f"{100 * change:+.1f}".replace("-", "−")


def _gap(number: float) -> str:
    return "–" if pd.isna(number) else f"{number:.1e}" if number else "0"
