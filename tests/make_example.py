"""The comparison that the app shows before its model is loaded: `python -m tests.make_example` makes it.

It holds the comparison's JSON and its cards as Vega-Lite, so that the first page needs neither torch
nor Altair.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lenses
from lenses import charts, registry, surface
from lenses.comparison import explain, gather
from lenses.question import ask

PLACE = Path(__file__).parent.parent / "assets" / "example.json"
PROMPT, TARGET = "The capital of France is", " Paris"


def example(decoder: lenses.Decoder) -> dict[str, Any]:
    question = ask(decoder, PROMPT, target=TARGET)
    found = gather(decoder, question, [explain(decoder, question, registry.get(n)) for n in registry.LENSES])
    seen = surface.look(decoder, question.trace, question.target)
    cards = {
        r.attribution.lens: charts.spec(
            charts.card(found, r, surface=seen, onset=found.onsets().get(r.attribution.lens))
        )
        for r in found.results
    }
    return {"comparison": found.to_dict(), "charts": cards}


if __name__ == "__main__":
    text = json.dumps(example(lenses.load()), ensure_ascii=False, allow_nan=False)
    PLACE.write_text(text + "\n", encoding="utf-8")
