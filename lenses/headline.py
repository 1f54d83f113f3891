"""A comparison in one plain sentence, for people who read nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lenses.onset import onset
from lenses.tokens import visible

if TYPE_CHECKING:
    from lenses.attribution import Attribution
    from lenses.outcome import Comparison

LONG = 90
"""Characters of the text before the target that the sentence repeats."""


def headline(comparison: Comparison) -> str:
    """What the model says, which block gave most of it, and from which depth on half of it is there.

    The second half comes from the first lens that claims a sum of probability across depths; without
    one the sentence stops after the first half.
    """
    said = (
        f"{comparison.model['name']} gives ‘{visible(comparison.target_text)}’ "
        f"{percent(comparison.probability)} after “{_before(comparison)}”"
    )
    ledger = next((r.attribution for r in comparison.ledgers), None)
    return f"{said}; {_account(ledger)}." if ledger and ledger.values.any() else f"{said}."


def percent(probability: float) -> str:
    """A probability as a reader takes it in: three digits, and no more zeros than help."""
    if 0 < probability < 1e-5:
        return "less than 0.001 %"
    return f"{100 * probability:.1f} %" if probability >= 0.001 else f"{100 * probability:.2g} %"


def _account(a: Attribution) -> str:
    """Which step gave most, and since when half of the change is there to stay."""
    most = int(np.argmax(np.abs(a.values)))
    first = (a.depths[most - 1] if most else 0) + 1
    last = a.depths[most]
    who = f"block {last - 1}" if first == last else f"blocks {first - 1} to {last - 1} together"
    if not most and a.options.get("baseline", "embedding") != "embedding":
        who, first = f"the embedding and {who}", 0  # the path starts before both
    one, rising = first == last, a.values[most] > 0
    verb = ("adds" if one else "add") if rising else ("takes" if one else "take")
    told = f"{who} {verb} {points(abs(float(a.values[most])))} {'of it' if rising else 'away again'}"
    there = onset(a.depths, a.values, "stays")
    if there is None:
        return told
    if a.end < a.start:
        return f"{told}, and half of its fall has come by depth {there}"
    return f"{told}, and half of the answer is there from depth {there} on"


def points(share: float) -> str:
    """A change of probability in percentage points, two digits."""
    points = 100 * share
    return f"{points:.0f} points" if points >= 9.5 else f"{points:.2g} points"


def _before(comparison: Comparison) -> str:
    """The text that the target follows, its beginning left out where it is long."""
    tokens, at = comparison.prompt.tokens, comparison.target.position
    whole = at == len(tokens) - 1 and not comparison.prompt.chat
    text = comparison.prompt.text if whole else "".join(t.text for t in tokens[: at + 1])
    return visible(text if len(text) <= LONG else f"…{text[-LONG:]}")
