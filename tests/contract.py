"""The JSON that other programs build on, written out by hand: every key, and what it may hold."""

from __future__ import annotations

import json
from typing import Any

from lenses.attribution import Unit

NUMBER, TEXT, WHOLE, FLAG = (int, float), (str,), (int,), (bool,)
MAYBE = (int, float, type(None))
DEPTH = (int, type(None))
SHARED = {
    "name": TEXT, "title": TEXT, "unit": {unit.value for unit in Unit},
    "claim": {"level", "across", "within"}, "options": (dict,), "depths": [WHOLE], "values": [MAYBE],
    "start": MAYBE, "end": MAYBE, "constant": MAYBE,
    "additivity": {
        "claimed": FLAG, "expected": MAYBE, "found": MAYBE, "gap": MAYBE, "tolerance": MAYBE,
        "verdict": {"exact", "converged", "not-converged", "not-claimed", "broken"},
    },
    "yardstick": {"expected": MAYBE, "found": MAYBE, "claimed": FLAG},
    "seconds": NUMBER,
}  # fmt: skip
WITHIN = {"positions": [[MAYBE]]}


PIECE = {"id": WHOLE, "text": TEXT, "probability": NUMBER}


def more(lens: dict[str, Any]) -> dict[str, Any]:
    """Halves only where they were asked for, pieces only of a target that has several."""
    found = {"halves": [[MAYBE]]} if lens["options"].get("halves") else {}
    return found | ({"pieces": [[MAYBE]]} if "pieces" in lens else {})


def target(found: dict[str, Any]) -> dict[str, Any]:
    """A target of several tokens says each."""
    plain = {"position": WHOLE, "id": WHOLE, "text": TEXT, "probability": NUMBER}
    return plain | ({"pieces": [PIECE]} if "pieces" in found else {})


COMPARISON = {
    "schema": {"lenses.comparison/1"},
    "model": {
        "name": TEXT, "source": TEXT, "revision": TEXT, "dtype": TEXT, "device": TEXT, "blocks": WHOLE,
        "width": WHOLE, "vocabulary": WHOLE, "readout_gap": NUMBER,
    },
    "prompt": TEXT,
    "tokens": [{"position": WHOLE, "id": WHOLE, "text": TEXT}],
    "target": target,
    "lenses": [lambda lens: SHARED | (WITHIN if lens["claim"] == "within" else {}) | more(lens)],
    "onsets": {
        "definitions": [{
            "name": {"moves", "crosses", "stays", "commits", "largest", "prediction-depth", "top-10"},
            "depth": DEPTH, "depths_low": DEPTH, "depths_high": DEPTH, "baseline_low": DEPTH,
            "baseline_high": DEPTH,
        }],
        "warnings": [TEXT],
    },
    "warnings": [TEXT],
    "provenance": dict.fromkeys(("lenses", "torch", "transformers", "captum", "python", "created"), TEXT),
}  # fmt: skip


def faults(value: Any, shape: Any, at: str = "$") -> list[str]:
    """Every place where a value is not of the shape: a type, a set of words, a list or an object."""
    if callable(shape):
        shape = shape(value)
    if isinstance(shape, tuple):
        return [] if type(value) in shape else [f"{at} is {type(value).__name__}"]
    if isinstance(shape, set):
        return [] if value in shape else [f"{at} is {value!r}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at} is no list"]
        return [fault for k, item in enumerate(value) for fault in faults(item, shape[0], f"{at}[{k}]")]
    if not isinstance(value, dict) or value.keys() != shape.keys():
        return [f"{at} has keys {sorted(value)}"]
    return [fault for key in shape for fault in faults(value[key], shape[key], f"{at}.{key}")]


def parsed(text: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)
