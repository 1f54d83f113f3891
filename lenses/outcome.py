"""What a comparison is, once it is computed: plain values, without torch, that go to JSON and back.

`Comparison.to_dict` is the JSON of the command line; `read` makes the comparison of such an object
again, so that a saved file is shown just as a fresh result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Additivity, Attribution, Claim, Unit, Verdict, Yardstick
from lenses.onset import RULES, Name, onset
from lenses.onsets import Onsets
from lenses.onsets import read as read_onsets
from lenses.surface import Ranked
from lenses.target import Target
from lenses.tokens import Prompt, Token

SCHEMA = "lenses.comparison/1"


@dataclass(frozen=True)
class Result:
    """One lens's answer, judged."""

    title: str
    attribution: Attribution
    additivity: Additivity
    yardstick: Yardstick
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """One prompt seen by several lenses, with where every number comes from."""

    model: dict[str, Any]
    prompt: Prompt
    target: Target
    target_text: str
    probability: float
    """The target's: of all its tokens together, where it has several."""
    results: tuple[Result, ...]
    warnings: tuple[str, ...]
    provenance: dict[str, str]
    pieces: tuple[Ranked, ...] = ()
    """The target's tokens, each with the model's own probability after those before it."""
    setting_in: Onsets | None = None
    """The onset by every definition; None in a file from before there was such a table."""

    @property
    def ledgers(self) -> tuple[Result, ...]:
        """The results that keep an account of the probability: shares that sum over depths."""
        return tuple(
            r
            for r in self.results
            if r.attribution.claim is Claim.ACROSS and r.attribution.unit is Unit.PROBABILITY
        )

    @property
    def accounts(self) -> tuple[Result, ...]:
        """The ledgers, of the probability before those that are kept in another readout."""
        across = [r for r in self.results if r.attribution.claim is Claim.ACROSS]
        others = [r for r in across if r.attribution.unit is not Unit.LOGIT and r not in self.ledgers]
        return (*self.ledgers, *others)

    def onsets(self, rule: Name = "moves") -> dict[str, int | None]:
        """The onset depth of each lens that claims a sum across depths: by its own shares, or the same
        for all by a definition that looks at levels or ranks."""
        across = [r.attribution for r in self.results if r.attribution.claim is Claim.ACROSS]
        if rule in RULES:
            return {a.lens: onset(a.depths, a.values, rule) for a in across}
        known = None if self.setting_in is None else self.setting_in.depth(rule)
        return {a.lens: known for a in across}

    def to_dict(self) -> dict[str, Any]:
        """The object of schema `lenses.comparison/1`; numbers that do not exist are None."""
        known = {} if self.setting_in is None else {"onsets": self.setting_in.to_dict()}
        each = [{"id": p.id, "text": p.text, "probability": number(p.probability)} for p in self.pieces]
        pieces = {"pieces": each} if len(each) > 1 else {}
        return {
            "schema": SCHEMA,
            "model": self.model,
            "prompt": self.prompt.text,
            "tokens": [{"position": t.position, "id": t.id, "text": t.text} for t in self.prompt.tokens],
            "target": {
                "position": self.target.position,
                "id": self.target.token,
                "text": self.target_text,
                "probability": number(self.probability),
                **pieces,
            },
            "lenses": [_result(result) for result in self.results],
            **known,
            "warnings": list(self.warnings),
            "provenance": self.provenance,
        }


def read(data: dict[str, Any]) -> Comparison:
    """The comparison of an object that `to_dict` made; raises `ValueError` for another schema."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"this is no {SCHEMA} object: its schema is {data.get('schema')!r}")
    target = data["target"]
    pieces = tuple(
        Ranked(one["id"], one["text"], _value(one["probability"])) for one in target.get("pieces", [])
    )
    return Comparison(
        model=data["model"],
        prompt=Prompt(data["prompt"], tuple(Token(**token) for token in data["tokens"])),
        target=Target(target["position"], target["id"], tuple(p.id for p in pieces[1:])),
        target_text=target["text"],
        probability=_value(target["probability"]),
        results=tuple(_read_result(entry) for entry in data["lenses"]),
        warnings=tuple(data["warnings"]),
        provenance=data["provenance"],
        pieces=pieces,
        setting_in=read_onsets(data["onsets"]) if "onsets" in data else None,
    )


def _read_result(entry: dict[str, Any]) -> Result:
    judged, stick = entry["additivity"], entry["yardstick"]
    verdict = Verdict(judged["verdict"])
    attribution = Attribution(
        lens=entry["name"],
        options=entry["options"],
        unit=Unit(entry["unit"]),
        claim=Claim(entry["claim"]),
        depths=np.array(entry["depths"]),
        values=_values(entry["values"]),
        start=_value(entry["start"]),
        end=_value(entry["end"]),
        constant=_value(entry["constant"]),
        positions=_rows(entry.get("positions")),
        pieces=_rows(entry.get("pieces")),
        halves=_rows(entry.get("halves")),
        plain_gap=None if "plain_gap" not in entry else _value(entry["plain_gap"]),
        quadrature=verdict in (Verdict.CONVERGED, Verdict.NOT_CONVERGED),
    )
    numbers = {k: _value(judged[k]) for k in ("expected", "found", "gap", "tolerance")}
    return Result(
        entry["title"],
        attribution,
        Additivity(judged["claimed"], verdict=verdict, **numbers),
        Yardstick(_value(stick["expected"]), _value(stick["found"]), stick["claimed"]),
        entry["seconds"],
    )


def _values(numbers: list[float | None]) -> Float[ndarray, " n"]:
    return np.array([_value(number) for number in numbers], dtype=np.float64)


def _rows(rows: list[list[float | None]] | None) -> Float[ndarray, "n _"] | None:
    return None if rows is None else np.array([_values(row) for row in rows])


def _value(number: float | None) -> float:
    return math.nan if number is None else float(number)


def _result(result: Result) -> dict[str, Any]:
    a, judged, stick = result.attribution, result.additivity, result.yardstick
    entry: dict[str, Any] = {
        "name": a.lens,
        "title": result.title,
        "unit": a.unit.value,
        "claim": a.claim.value,
        "options": {k: list(v) if isinstance(v, tuple) else v for k, v in a.options.items()},
        "depths": a.depths.tolist(),
        "values": [number(value) for value in a.values],
        "start": number(a.start),
        "end": number(a.end),
        "constant": number(a.constant),
        "additivity": {
            "claimed": judged.claimed,
            "expected": number(judged.expected),
            "found": number(judged.found),
            "gap": number(judged.gap),
            "tolerance": number(judged.tolerance),
            "verdict": judged.verdict.value,
        },
        "yardstick": {
            "expected": number(stick.expected),
            "found": number(stick.found),
            "claimed": stick.claimed,
        },
        "seconds": round(result.seconds, 4),
    }
    if a.plain_gap is not None:
        entry["plain_gap"] = number(a.plain_gap)
    for name, rows in (("positions", a.positions), ("halves", a.halves), ("pieces", a.pieces)):
        if rows is not None:
            entry[name] = [[number(value) for value in row] for row in rows]
    return entry


def number(value: float) -> float | None:
    """A JSON number, or None for what JSON can't hold."""
    return float(value) if math.isfinite(value) else None
