"""bfloat16 and float16 weights: the model reads itself; its logits are normalised in float32 or better."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lenses import comparison, question, readout, registry
from lenses.attribution import Verdict, check
from lenses.decoder import Decoder
from lenses.proof import TOLERANCE
from lenses.target import Target
from tests import numbers, tiny

FAMILIES = ("llama", "gpt2", "gemma2", "bloom", "mixtral", "opt")
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
EACH = pytest.mark.parametrize("family", FAMILIES)
NEAR = {torch.bfloat16: 2e-3, torch.float16: 1e-4}
"""How far a level of these models may be from the float32 model's: their own arithmetic, not ours."""

INTEGRALS = {torch.bfloat16: 0.4, torch.float16: 0.2}
"""The same of an integral, as a part of its largest number: gradients have as few bits, and cancel."""


def half(family: str, dtype: torch.dtype) -> Decoder:
    return Decoder(tiny.model(family).to(dtype), tiny.tokenizer(), family)


@HALF
@EACH
def test_readings_are_normalised_in_float64_whatever_the_weights_are(family, dtype):
    decoder = half(family, dtype)
    rows = decoder.trace(tiny.IDS)[-1]
    logits = decoder.readout(rows)
    assert logits.dtype == dtype
    expected = logits.double().log_softmax(dim=-1)
    found = readout.read(decoder, rows, tiny.TARGET, top=5)
    # Float32 sums of 64 numbers; a softmax in bfloat16 would be off by 4e-3.
    assert found.log_probability == pytest.approx(expected[:, tiny.TARGET].numpy(), abs=1e-6)
    assert found.top_probability == pytest.approx(expected.exp().topk(5).values.numpy(), abs=1e-6)
    coarse = logits.log_softmax(dim=-1).double()[:, tiny.TARGET].numpy()
    assert np.abs(coarse - found.log_probability).max() > 1e-5  # the checker sees one that is not


@HALF
@EACH
def test_all_probabilities_of_a_prompt_add_up_to_1(family, dtype):
    decoder = half(family, dtype)
    rows = decoder.trace(tiny.IDS).residual[:, -1]
    every = [readout.level(decoder, rows, token) for token in range(64)]
    assert np.sum(every, axis=0) == pytest.approx(np.ones(4), abs=2e-6)
    asked = question.ask(decoder, tiny.PROMPT, target="w5")
    assert asked.reading.probabilities.sum() == pytest.approx(1.0, abs=1e-12)


@HALF
@EACH
def test_the_readout_is_proved_within_the_formats_own_rounding(family, dtype):
    decoder = half(family, dtype)
    assert decoder.dtype == dtype
    assert decoder.readout_gap <= TOLERANCE[dtype]
    own = decoder.own(tiny.IDS).double().softmax(dim=-1)[-1, tiny.TARGET]
    last = readout.level(decoder, decoder.trace(tiny.IDS)[-1], tiny.TARGET)[-1]
    assert last == pytest.approx(float(own), abs=TOLERANCE[dtype])


@HALF
@EACH
def test_a_ledger_closes_in_its_own_sums_and_is_near_the_float32_models(family, dtype):
    decoder, target = half(family, dtype), Target(len(tiny.IDS) - 1, tiny.TARGET)
    found = registry.get("ig-lens").attribute(decoder, decoder.trace(tiny.IDS), target)
    assert check(found).verdict is Verdict.EXACT
    assert abs(found.values.sum() - (found.end - found.start)) < 1e-12
    whole = tiny.decoder(family)
    levels = readout.level(whole, whole.trace(tiny.IDS).residual[:, -1], tiny.TARGET)
    near = readout.level(decoder, decoder.trace(tiny.IDS).residual[:, -1], tiny.TARGET)
    assert np.abs(near - levels).max() < NEAR[dtype]


@HALF
@EACH
def test_the_integrals_of_a_half_precision_model_are_near_the_float32_models(family, dtype):
    decoder, target = half(family, dtype), Target(len(tiny.IDS) - 1, tiny.TARGET)
    whole = tiny.decoder(family)
    for name in ("conductance", "layer-ig"):
        lens = registry.get(name, steps=20)
        pair = (lens.attribute(d, d.trace(tiny.IDS), target).positions for d in (decoder, whole))
        found, expected = pair
        assert numbers.apart(found, expected) < INTEGRALS[dtype], name


@HALF
def test_a_comparison_says_its_number_format(dtype):
    found = comparison.compare(half("llama", dtype), tiny.PROMPT, target="w5").to_dict()
    assert found["model"]["dtype"] == str(dtype).removeprefix("torch.")
    exact = {lens["name"]: lens["additivity"]["verdict"] for lens in found["lenses"]}
    assert exact["ig-lens"] == "exact"
