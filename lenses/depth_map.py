"""One lens over a whole text: tokens across, depths down; plain values that go to JSON and back.

Column k explains the token that follows position k: the prompt's next one, a generated one, or, at
the end, the model's most likely next token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lenses.attribution import Attribution
from lenses.outcome import number
from lenses.surface import Ranked, Surface
from lenses.tokens import Prompt

SCHEMA = "lenses.map/1"


@dataclass(frozen=True)
class Column:
    """One position: its next token with the model's probability, and what the lens says of it."""

    position: int
    target: Ranked
    attribution: Attribution
    surface: Surface | None


@dataclass(frozen=True)
class DepthMap:
    """A lens's values at every depth of every position, in the lens's own unit."""

    model: dict[str, Any]
    prompt: Prompt
    """With the answer's tokens at its end, where there is one."""
    answer_from: int | None
    """The position of the first generated token."""
    title: str
    columns: tuple[Column, ...]
    warnings: tuple[str, ...]
    provenance: dict[str, str]

    @property
    def lens(self) -> Attribution:
        """The first column's attribution, for what all columns have in common."""
        return self.columns[0].attribution

    @property
    def depths(self) -> Int[ndarray, " depth"]:
        return self.lens.depths

    @property
    def values(self) -> Float[ndarray, "depth column"]:
        return np.stack([column.attribution.values for column in self.columns], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """The object of schema `lenses.map/1`; numbers that do not exist are None."""
        data = {
            "schema": SCHEMA,
            "model": self.model,
            "prompt": self.prompt.text,
            "tokens": [{"position": t.position, "id": t.id, "text": t.text} for t in self.prompt.tokens],
            "answer_from": self.answer_from,
            "lens": self.lens.lens,
            "unit": self.lens.unit.value,
            "depths": self.depths.tolist(),
            "columns": [{"position": c.position, "target": _target(c.target)} for c in self.columns],
            "values": [[number(value) for value in row] for row in self.values],
            "start": [number(c.attribution.start) for c in self.columns],
            "end": [number(c.attribution.end) for c in self.columns],
            "warnings": list(self.warnings),
            "provenance": self.provenance,
        }
        surfaces = [c.surface for c in self.columns if c.surface is not None]
        if len(surfaces) == len(self.columns):
            data["top"] = [
                [[[r.id, r.text, r.probability] for r in surface.top[depth]] for surface in surfaces]
                for depth in self.depths
            ]
        return data


def _target(target: Ranked) -> dict[str, Any]:
    return {"id": target.id, "text": target.text, "probability": number(target.probability)}
