"""A target of several tokens: the joint probability that they follow one another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lenses import ablation, readout, registry
from lenses.attribution import check
from lenses.target import Target
from tests import naive, tiny

TOKENS = [5, 30, 11]
IDS = [*tiny.IDS, *TOKENS[:-1]]
"""The trace holds all tokens of the target but the last."""
TARGET = Target(len(tiny.IDS) - 1, TOKENS[0], tuple(TOKENS[1:]))
FAMILIES = ["gpt2", "llama", "bloom", "mamba"]


def joint(family: str, ids: list[int]) -> float:
    with torch.no_grad():
        logits = tiny.decoder(family).model(input_ids=torch.tensor([ids])).logits[0]
    return float(naive.chance(logits.double(), TOKENS))


@pytest.mark.parametrize("estimator", ["gradient", "observed"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["conductance", "layer-ig"])
def test_an_integral_of_a_word_equals_its_naive_twin(name, family, estimator):
    decoder = tiny.decoder(family)
    found = registry.get(name, steps=5, estimator=estimator).attribute(decoder, decoder.trace(IDS), TARGET)
    given, twin = (decoder if name == "conductance" else decoder.model), name.replace("-", "_")
    expected = getattr(naive, twin)(given, IDS, TOKENS, 5, observed=estimator == "observed")
    assert found.positions == pytest.approx(expected, abs=1e-4 * np.abs(expected).max())
    assert found.end == pytest.approx(joint(family, IDS), rel=1e-4)
    if estimator == "observed":
        assert abs(check(found).gap) <= 1e-12


@pytest.mark.parametrize("name", ["conductance", "layer-ig"])
def test_captums_own_calls_explain_a_word_too(name):
    decoder = tiny.decoder("llama")
    trace = decoder.trace(IDS)
    ours, captum = (
        registry.get(name, steps=5, **options).attribute(decoder, trace, TARGET).positions
        for options in ({}, {"engine": "captum"})
    )
    assert ours == pytest.approx(captum, abs=1e-5 * np.abs(captum).max())


@pytest.mark.parametrize("name", ["conductance", "layer-ig"])
def test_tokens_after_the_word_have_no_part(name):
    decoder = tiny.decoder("llama")
    lens = registry.get(name, steps=4, baseline="token", token=7)
    whole = lens.attribute(decoder, decoder.trace([*IDS, 3, 9]), TARGET)
    cut = lens.attribute(decoder, decoder.trace(IDS), TARGET)
    assert (whole.positions[:, len(IDS) :] == 0).all()
    assert whole.positions[:, : len(IDS)] == pytest.approx(
        cut.positions, abs=1e-6 * np.abs(cut.positions).max()
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_skipping_a_block_leaves_the_joint_probability_of_a_word(family, last):
    decoder = tiny.decoder(family)
    trace = decoder.trace(IDS)
    found = ablation.skipped(decoder, trace, TARGET, last=last)
    for block in range(decoder.blocks):
        state = trace[block + 1].clone()
        changed = slice(TARGET.position if last else 0, None)
        state[changed] = trace[block][changed]
        with torch.no_grad():
            logits = naive.resumed(decoder.model, IDS, block + 1, state)
        assert found[block] == pytest.approx(float(naive.chance(logits.double(), TOKENS)), rel=1e-4)
    if not last:
        below = readout.read(decoder, trace[-2][list(TARGET.positions)], torch.tensor(TOKENS))
        assert found[-1] == pytest.approx(below.probability.prod(), rel=1e-4)
