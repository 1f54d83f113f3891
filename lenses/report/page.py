"""`report.html`: one file that opens anywhere, offline, for people who read pictures and sentences.

Pictures stand in it as pictures, so that it shows and prints without running anything; where scripts
run, they come alive, and each prompt's ledger opens by a click. Nothing is ever fetched. What a user
wrote is escaped as text by the template and, inside data, kept from ending the script it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from lenses import aggregates, charts
from lenses.attribution import Verdict
from lenses.findings import Findings, LensFindings
from lenses.headline import percent, points
from lenses.prompts.wording import counted
from lenses.registry import LENSES
from lenses.report.details import Details, definitions, listed, panels
from lenses.report.figures import HALF, WIDE, Figure, data, engine, figure
from lenses.report.ranked import ranked
from lenses.tokens import visible

HOME = Path(__file__).parent
LONG = 160
"""Characters of a prompt in the table."""


def html(findings: Findings, details: Details) -> str:
    """The page."""
    shown = findings.rows[findings.rows["row"].isin(listed(findings))]
    return _template().render(
        findings=findings,
        title=f"{counted(len(findings.rows), 'prompt')} through {findings.model['name']}",
        file=findings.settings["file"],
        sentences=aggregates.sentences(findings),
        tiles=_tiles(findings),
        additivity=aggregates.additivity(findings).to_dict("records"),
        adds_up={
            lens.title: LENSES[lens.lens].card.adds_up for lens in findings.lenses if lens.lens in LENSES
        },
        verdicts=[verdict.value for verdict in Verdict],
        whole=aggregates.whole(findings),
        groups=aggregates.groups(findings).to_dict("records"),
        onsets=_onset_figures(findings),
        bands=[_band(findings, lens) for lens in findings.lenses],
        agreement=_agreement(findings),
        ranked=ranked(findings),
        notable=_notable(findings),
        rows=[_row(line, details) for line in shown.to_dict("records")],
        has={name: bool((shown[name] != "").any()) for name in ("id", "group")},
        details=data({"rows": details.kept, "lenses": panels(findings), "onsets": definitions()}),
        failures=findings.failed.to_dict("records"),
        provenance=provenance(findings),
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


def _onset_figures(findings: Findings) -> list[Figure]:
    if not findings.explained["onset"].notna().any():
        return []
    figures = [
        figure(
            "onsets",
            "All prompts",
            "A histogram of onset depths",
            lambda width: charts.onsets(findings, width=width),
            WIDE,
        )
    ]
    if findings.groups:
        figures.append(
            figure(
                "onset-groups",
                "By group",
                "Onset depths, a row a group",
                lambda width: charts.onset_groups(findings, width=width),
                WIDE - 150,
            )
        )
    return figures


def _band(findings: Findings, lens: LensFindings) -> Figure:
    return figure(
        f"band-{lens.lens}", lens.title, f"{lens.title}: mean over all prompts at each depth",
        lambda width: charts.band(findings, lens, width=width), HALF,
    )  # fmt: skip


def _agreement(findings: Findings) -> list[Figure]:
    if len(findings.lenses) < 2:
        return []
    return [
        figure(
            "agreement",
            "Agreement",
            "Mean rank correlations between the methods",
            lambda width: charts.mean_agreement(findings, width=width),
            HALF - 110,
        )
    ]


def _tiles(findings: Findings) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first."""
    known, ledger = findings.explained, findings.ledger
    tiles = [(f"{len(known)} of {len(findings.rows)}", "prompts explained")]
    if len(known):
        tiles.append((percent(float(known["probability"].mean())), "mean probability of the word"))
    middle = aggregates.quartiles(known["onset"])[1]
    if middle == middle:
        tiles.append((f"{middle:.0f} of {findings.model['blocks']}", "middle onset depth"))
    if ledger is not None:
        exact = sum(verdict in (Verdict.EXACT, Verdict.CONVERGED) for verdict in ledger.verdicts)
        tiles.append((f"{exact} of {len(ledger.rows)}", f"{ledger.title} ledgers that add up"))
    return tiles


def _notable(findings: Findings) -> list[dict[str, Any]]:
    """The rows that stand out, with what is shown of them."""
    rows = findings.rows.set_index("row")
    found = []
    for why, frame in aggregates.notable(findings).items():
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


def provenance(findings: Findings) -> list[tuple[str, str]]:
    """Where every number comes from, as a reader can check it."""
    model, asked = findings.model, findings.settings

    lenses = "; ".join(
        name + (f" ({', '.join(f'{k}: {v}' for k, v in options.items())})" if options else "")
        for name, options in asked["lenses"].items()
    )
    versions = {k: v for k, v in findings.provenance.items() if k != "created"}
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
        ("Computed", f"{findings.provenance.get('created', 'nothing')} (UTC)"),
    ]
    return [(name, text) for name, text in lines if text]


def _cut(text: str, most: int = LONG) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _signed(change: float) -> str:
    """A change of probability in points, with its sign."""
    return "0" if abs(change) < 5e-5 else f"{100 * change:+.1f}".replace("-", "−")


def _gap(number: float) -> str:
    return "–" if pd.isna(number) else f"{number:.1e}" if number else "0"
