"""Comparisons as pandas tables; the same frames feed the terminal, the charts, the app and the files."""

from __future__ import annotations

import pandas as pd

from lenses.attribution import Claim
from lenses.comparison import Comparison, Result
from lenses.lens import fields
from lenses.onset import onset


def wide(comparison: Comparison) -> pd.DataFrame:
    """One row a depth, one column a lens (its name), in each lens's own unit; blank where it has none."""
    columns = {
        r.attribution.lens: pd.Series(r.attribution.values, r.attribution.depths) for r in comparison.results
    }
    return pd.DataFrame(columns).sort_index().rename_axis("depth")


def tidy(comparison: Comparison) -> pd.DataFrame:
    """One row a lens and depth: lens, depth, unit, value."""
    frames = [
        pd.DataFrame(
            {"lens": r.attribution.lens, "depth": r.attribution.depths, "unit": r.attribution.unit.value,
             "value": r.attribution.values}
        )
        for r in comparison.results
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def onsets(comparison: Comparison) -> dict[str, int | None]:
    """The onset depth by the shares of each lens that claims a sum across depths."""
    across = [r.attribution for r in comparison.results if r.attribution.claim is Claim.ACROSS]
    return {a.lens: onset(a.depths, a.values) for a in across}


def receipt(result: Result) -> str:
    """One line: what the values start from, sum to and should end at, and the verdict in words."""
    a, judged = result.attribution, result.additivity
    verdict = judged.verdict.value.replace("-", " ")
    if a.claim is Claim.LEVEL:
        return (
            f"{verdict}: levels, from {value(a.start)} at depth 0 to {value(a.end)} at depth {a.depths[-1]}"
        )
    constant = f" + constant {value(a.constant)}" if a.constant else ""
    gap = f"gap {judged.gap:.1e}, {verdict}"
    if a.claim is Claim.WITHIN:
        return (
            f"within each depth: start {value(a.start)} + Σ = end {value(a.end)}; at the worst depth "
            f"Σ = {value(judged.found)} for {value(judged.expected)}; {gap}"
        )
    total = value(float(a.values.sum()))
    return f"start {value(a.start)} + Σ {total}{constant} = end {value(a.end)}; {gap}"


def value(number: float) -> str:
    """A number with as many digits as are stable: four decimals, or its power of ten."""
    return f"{number:.4f}" if number == 0 or abs(number) >= 5e-4 else f"{number:.1e}"


def methods() -> pd.DataFrame:
    """The registered lenses: name, title, what each measures and claims, options and source."""
    from lenses.registry import LENSES

    return pd.DataFrame(
        [
            {
                "name": lens.name,
                "method": lens.title,
                "measures": lens.card.measures,
                "claims": CLAIMS[lens.claim],
                "options": ", ".join(f.name for f in fields(lens)) or "none",
                "source": lens.source,
            }
            for lens in LENSES.values()
        ]
    )


CLAIMS = {
    Claim.LEVEL: "nothing: levels are readings",
    Claim.ACROSS: "shares sum over depths",
    Claim.WITHIN: "sums within each depth",
}
