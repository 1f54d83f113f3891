"""The one judge: it says what is so, and is shown to fail on a lie."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenses import registry
from lenses.attribution import Attribution, Claim, Unit, Verdict, check, yardstick
from lenses.target import Target
from tests import tiny

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
SHARES = st.lists(st.floats(-1, 1), min_size=1, max_size=200)


def made(values, claim=Claim.ACROSS, **changes) -> Attribution:
    values = np.asarray(values, dtype=float)
    facts = dict(
        lens="made",
        options={},
        unit=Unit.PROBABILITY,
        claim=claim,
        depths=np.arange(1, len(values) + 1),
        values=values,
        start=0.0,
        end=float(values.sum()),
    )
    return Attribution(**{**facts, **changes})  # fmt: skip


def nudged(a: Attribution) -> Attribution:
    """The largest value changed by 1 %."""
    values = a.values.copy()
    values[np.abs(values).argmax()] *= 1.01
    return dataclasses.replace(a, values=values)


@pytest.mark.parametrize("name", ["ig-lens", "dla"])
@pytest.mark.parametrize("family", tiny.SOME)
def test_an_identity_is_exact_and_broken_once_a_value_is_nudged_by_one_percent(family, name):
    decoder = tiny.decoder(family)
    found = registry.get(name).attribute(decoder, decoder.trace(tiny.IDS), TARGET)
    assert check(found).verdict is Verdict.EXACT
    assert check(nudged(found)).verdict is Verdict.BROKEN


@given(SHARES)
def test_shares_that_telescope_are_exact(values):
    levels = np.cumsum([0.0, *values])
    judged = check(made(np.diff(levels), start=levels[0], end=levels[-1]))
    assert judged.verdict is Verdict.EXACT
    assert judged.gap == pytest.approx(0, abs=1e-12)


@given(SHARES, st.floats(1e-9, 1))
def test_a_gap_above_rounding_is_broken(values, lie):
    a = made(values)
    assert check(dataclasses.replace(a, end=a.end + lie)).verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(0.009, Verdict.CONVERGED), (0.011, Verdict.NOT_CONVERGED), (-0.011, Verdict.NOT_CONVERGED)],
)
def test_a_quadrature_has_converged_within_one_percent(off, verdict):
    values = np.array([0.5, 0.5 * (1 + off), 0.5])
    within = made(values, Claim.WITHIN, quadrature=True, end=0.5)
    judged = check(within)
    assert judged.verdict is verdict
    assert judged.found == values[1], "the worst depth is the one that is judged"
    assert judged.gap == pytest.approx(0.5 * off)


def test_levels_are_never_scolded():
    judged = check(made([0.1, 0.9, 0.2], Claim.LEVEL, start=0.1, end=0.2))
    assert judged.verdict is Verdict.NOT_CLAIMED
    assert not judged.claimed


def test_a_constant_is_part_of_the_sum():
    a = made([1.0, 2.0], unit=Unit.LOGIT, constant=-0.5, end=2.5)
    assert check(a).verdict is Verdict.EXACT
    assert check(dataclasses.replace(a, constant=0.0)).verdict is Verdict.BROKEN


def test_not_a_number_is_never_exact():
    assert check(made([np.nan, 1.0], end=1.0)).verdict is Verdict.BROKEN
    assert check(made([np.nan], quadrature=True, end=1.0)).verdict is Verdict.NOT_CONVERGED


@pytest.mark.parametrize(
    ("claim", "unit", "held"),
    [(Claim.ACROSS, Unit.PROBABILITY, True), (Claim.ACROSS, Unit.LOGIT, False),
     (Claim.LEVEL, Unit.PROBABILITY, False), (Claim.WITHIN, Unit.PROBABILITY, False)],
)  # fmt: skip
def test_only_probabilities_across_depths_are_held_to_the_yardstick(claim, unit, held):
    stick = yardstick(made([0.2, 0.3], claim, unit=unit), delta=0.7)
    assert stick.claimed is held
    assert stick.found == 0.5
    assert stick.expected == (0.5 if held else 0.7)
