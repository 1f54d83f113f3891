"""Integrals whose steps are made to sum to what was observed: exact at any number of steps."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

import lenses
from lenses import outcome, paths, registry
from lenses.attribution import Attribution, Verdict, check
from lenses.observed import closed
from lenses.receipt import receipt
from lenses.target import Target
from tests import naive, tiny

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
BOTH = pytest.mark.parametrize("name", ["conductance", "layer-ig"])


def attribute(family: str, name: str, estimator: str = "observed", **options: object) -> Attribution:
    decoder = tiny.decoder(family)
    lens = registry.get(name, estimator=estimator, **options)
    return lens.attribute(decoder, decoder.trace(tiny.IDS), TARGET)


@pytest.mark.parametrize("steps", [4, 20, 50])
@pytest.mark.parametrize("baseline", ["mean", "zero"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom", "falcon_new", "mamba"])
@BOTH
def test_every_depth_sums_to_the_whole_change_at_any_number_of_steps(name, family, baseline, steps):
    found = attribute(family, name, baseline=baseline, steps=steps)
    whole = found.end - found.start
    assert found.values == pytest.approx(np.full(3, whole), abs=1e-9, rel=0)
    assert found.positions.sum(axis=1) == pytest.approx(found.values, abs=1e-12)
    assert check(found).verdict is Verdict.EXACT
    # The judge sees a lie of a hundredth.
    assert check(dataclasses.replace(found, values=found.values * 1.01)).verdict is Verdict.BROKEN


@pytest.mark.parametrize("baseline", ["mean", "zero"])
@BOTH
def test_the_gap_without_the_correction_is_that_of_the_gradient_estimator(name, baseline):
    found = attribute("llama", name, baseline=baseline, steps=4)
    plain = attribute("llama", name, "gradient", baseline=baseline, steps=4)
    assert found.plain_gap == check(plain).gap
    assert abs(found.plain_gap) > 1e-3
    assert plain.plain_gap is None


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mamba"])
@BOTH
def test_closed_steps_equal_their_naive_twin(name, family):
    decoder = tiny.decoder(family)
    given = decoder if name == "conductance" else decoder.model
    twin = getattr(naive, name.replace("-", "_"))(given, tiny.IDS, [tiny.TARGET], 5, observed=True)
    found = attribute(family, name, steps=5).positions
    assert found == pytest.approx(twin, abs=1e-5 * np.abs(twin).max())  # gradients in float32
    if family == "llama":  # the twin is no other's
        plain = attribute(family, name, "gradient", steps=5).positions
        assert np.abs(plain - twin).max() > 1e-3 * np.abs(twin).max()


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom"])
@BOTH
def test_both_estimators_meet_as_steps_grow(name, family):
    far, near = (
        np.abs(
            attribute(family, name, steps=steps).positions
            - attribute(family, name, "gradient", steps=steps).positions
        ).max()
        for steps in (5, 500)
    )
    largest = np.abs(attribute(family, name, steps=500).positions).max()
    assert near < 0.05 * largest  # Captum's left points converge as 1/steps
    assert near < far or near < 1e-5 * largest  # or both are there already


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_few_closed_steps_are_nearer_to_the_limit_than_captums_left_points(family):
    limit = attribute(family, "conductance", steps=1000).positions
    closed_off, plain_off = (
        np.abs(attribute(family, "conductance", estimator, steps=20).positions - limit).max()
        for estimator in ("observed", "gradient")
    )
    assert closed_off < plain_off / 10


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@BOTH
def test_the_batch_size_changes_no_closed_step(name, size):
    whole = attribute("llama", name, steps=7)
    parts = attribute("llama", name, steps=7, internal_batch_size=size)
    assert parts.positions == pytest.approx(whole.positions, abs=1e-5 * np.abs(whole.positions).max())
    assert check(parts).verdict is Verdict.EXACT


@BOTH
def test_little_memory_changes_no_closed_step(name, monkeypatch):
    whole = attribute("llama", name, steps=7).positions
    monkeypatch.setattr(paths, "MEMORY", 1)
    assert attribute("llama", name, steps=7).positions == pytest.approx(whole, abs=1e-5 * np.abs(whole).max())


@BOTH
def test_the_receipt_and_the_json_say_what_the_gap_would_have_been(name):
    lens = registry.get(name, estimator="observed", steps=4)
    found = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5", lenses=[lens])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    (entry,), (result,) = data["lenses"], found.results
    assert entry["plain_gap"] == result.attribution.plain_gap
    assert entry["options"]["estimator"] == "observed"
    assert "engine" not in entry["options"]
    assert outcome.read(data).to_dict() == data
    said = f"exact; without the correction the gap would be {entry['plain_gap']:.1e}"
    assert receipt(result).endswith(said)
    assert receipt(outcome.read(data).results[0]) == receipt(result)


def test_what_a_step_misses_goes_to_positions_in_proportion_to_their_size():
    parts, sizes = torch.tensor([[1.0, -1.0, 0.0]]).double(), torch.tensor([[1.0, 3.0, 0.0]]).double()
    found = closed(parts, sizes, torch.tensor([2.0]).double())
    assert found.tolist() == [[1.5, 0.5, 0.0]]


def test_a_step_without_any_gradient_is_given_out_evenly():
    nothing = torch.zeros(2, 4).double()
    found = closed(nothing, nothing, torch.tensor([2.0, 0.0]).double())
    assert found.tolist() == [[0.5] * 4, [0.0] * 4]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_is_refused(bad):
    parts = torch.tensor([[1.0, bad]]).double()
    with pytest.raises(lenses.NonFinite, match="gradient on the path is not finite"):
        closed(parts, parts.abs(), torch.tensor([2.0]).double())


@pytest.mark.real
def test_the_default_model_closes_at_four_steps(smol):
    trace = smol.trace(smol.tokenizer("The capital of France is").input_ids)
    target = Target(trace.positions - 1, 7042)
    for name in ("conductance", "layer-ig"):
        found = registry.get(name, estimator="observed", steps=4).attribute(smol, trace, target)
        assert np.abs(found.values - (found.end - found.start)).max() <= 1e-9
        assert check(found).verdict is Verdict.EXACT
        assert abs(found.plain_gap) > 0.1


@pytest.mark.real
@pytest.mark.parametrize("steps", [20, 50])
def test_conductance_of_the_default_model_closes_at_more(smol, steps):
    trace = smol.trace(smol.tokenizer("The capital of France is").input_ids)
    lens = registry.get("conductance", estimator="observed", steps=steps)
    found = lens.attribute(smol, trace, Target(trace.positions - 1, 7042))
    assert np.abs(found.values - (found.end - found.start)).max() <= 1e-9
