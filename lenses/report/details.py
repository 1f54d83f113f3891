"""What a click on a prompt shows on a report's page, as small as it can be, and for whom there is room."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lenses import charts, depth_tables
from lenses.findings import Outcome
from lenses.headline import percent
from lenses.onset import DEFINITIONS
from lenses.onsets import Onsets
from lenses.receipt import place, receipt
from lenses.summary import Counts, Summary
from lenses.tokens import visible

DETAILS = 4 << 20
"""Bytes of single prompts' ledgers that the page holds; what stands out comes first."""


class Details:
    """Takes the outcomes of a run and keeps what a click on a prompt shows, while there is room."""

    def __init__(self, summary: Summary, room: int = DETAILS) -> None:
        self._first = {int(row) for frame in summary.notable.values() for row in frame["row"]}
        self._listed = set(summary.listed["row"].tolist())
        self._room = room
        self.kept: dict[int, Any] = {}

    def add(self, one: Outcome) -> None:
        row = one.row.row
        if one.comparison is None or row not in self._listed or (self._room <= 0 and row not in self._first):
            return
        self.kept[row] = _detail(one)
        self._room -= len(json.dumps(self.kept[row]))


def _detail(one: Outcome) -> dict[str, Any]:
    """What a click shows of one prompt, as small as it can be."""
    found = one.comparison
    assert found is not None
    lenses = {
        r.attribution.lens: {
            "values": [_short(v) for v in r.attribution.values],
            "start": _short(r.attribution.start),
            "end": _short(r.attribution.end),
            "constant": _short(r.attribution.constant),
            "receipt": receipt(r),
        }
        for r in found.results
    }
    return {
        "tokens": [visible(token.text) for token in found.prompt.tokens],
        "target": visible(found.target_text),
        "probability": percent(found.probability),
        "prompt": visible(found.prompt.text),
        "warnings": list(found.warnings),
        "lenses": lenses,
        "onsets": None if found.setting_in is None else _onsets(found.setting_in),
    }


def _onsets(found: Onsets) -> dict[str, Any]:
    """Each definition's depth and ranges in words, in the order of `definitions`, and the warnings."""
    words = depth_tables.setting_in(found)[["at", "by_depths", "by_baseline"]]
    return {"lines": words.to_numpy().tolist(), "warnings": list(found.warnings)}


def definitions() -> list[tuple[str, str]]:
    """The definitions of onset, each with what it means, once for all prompts."""
    return [(one.title, one.meaning) for one in DEFINITIONS.values()]


def panels(counts: Counts) -> list[dict[str, Any]]:
    """For each lens how its values of one prompt are drawn: as an account where it keeps one."""
    panels = []
    for lens in counts.lenses:
        if lens.keeps_ledger:
            drawn = charts.ledger_panel(lens.unit)
        else:
            drawn = charts.panel(lens, counts.model["blocks"])
        depths = lens.depths.tolist()
        panels.append({
            "lens": lens.lens, "title": lens.title, "ledger": lens.keeps_ledger, "depths": depths,
            "names": [place(depth) for depth in depths], "spec": charts.spec(drawn),
        })  # fmt: skip
    return panels


def _short(number: float) -> float | None:
    """Six digits, which is more than is stable and all that a chart shows."""
    return float(f"{number:.6g}") if np.isfinite(number) else None
