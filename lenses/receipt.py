"""Numbers and receipts in words, the same on the terminal, on a page and in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lenses.attribution import Claim, Form, Unit

if TYPE_CHECKING:
    from lenses.outcome import Result


def receipt(result: Result) -> str:
    """One line: what the values start from, sum to and should end at, and the verdict in words."""
    a, judged = result.attribution, result.additivity
    verdict = judged.verdict.value.replace("-", " ")
    if a.form is Form.DROP:
        least, most = a.end - np.nanmax(a.values), a.end - np.nanmin(a.values)
        return f"{verdict}: drops from {value(a.end)}, to between {value(least)} and {value(most)}"
    if a.form is Form.LEVEL:
        return (
            f"{verdict}: levels, from {value(a.start)} at depth 0 to {value(a.end)} at depth {a.depths[-1]}"
        )
    constant = f" + constant {value(a.constant)}" if a.constant else ""
    gap = f"gap {judged.gap:.1e}, {verdict}"
    if a.claim is Claim.WITHIN:
        plain = "" if a.plain_gap is None else f"; without the correction the gap would be {a.plain_gap:.1e}"
        return (
            f"within each depth: start {value(a.start)} + Σ = end {value(a.end)}; at the worst depth "
            f"Σ = {value(judged.found)} for {value(judged.expected)}; {gap}{plain}"
        )
    total = value(float(a.values.sum()))
    return f"start {value(a.start)} + Σ {total}{constant} = end {value(a.end)}; {gap}"


def amount(form: Form, unit: Unit) -> str:
    """What a value is, with its unit: `share (probability)`; a drop's unit says it all."""
    return unit.value if form is Form.DROP else f"{form.value} ({unit.value})"


def place(depth: int) -> str:
    """The name of a depth, as a reader should see it."""
    return "embedding" if depth == 0 else f"after block {depth - 1}"


def span(low: int | None, high: int | None) -> str:
    """A range of depths: `12–15`, `12` where it is one, a dash where there is none."""
    if low is None or high is None:
        return "–"
    return str(low) if low == high else f"{low}–{high}"


def value(number: float) -> str:
    """A number with as many digits as are stable: four decimals, or its power of ten."""
    return f"{number:.4f}" if number == 0 or abs(number) >= 5e-4 else f"{number:.1e}"
