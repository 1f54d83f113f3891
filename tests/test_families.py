"""`trace` and `resume` on every family: the model's own logits, to the last bit."""

from __future__ import annotations

import hashlib

import pytest
import torch

from lenses import readout
from tests import tiny


def fingerprint(model: torch.nn.Module) -> tuple:
    """Every weight's hash and every hook: what a call may not change."""
    weights = tuple(hashlib.sha256(p.detach().numpy().tobytes()).hexdigest() for p in model.parameters())
    hooks = tuple(
        len(hooks)
        for module in model.modules()
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    )
    return weights, hooks, model.training


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_resuming_a_traced_state_gives_the_models_logits_to_the_bit(family):
    decoder = tiny.decoder(family)
    before = fingerprint(decoder.model)
    own = decoder.model(torch.tensor([tiny.IDS])).logits[0]
    trace = decoder.trace(tiny.IDS)
    assert trace.residual.shape == (decoder.blocks + 1, len(tiny.IDS), decoder.width)
    with torch.no_grad():
        for depth in range(decoder.blocks + 1):
            assert torch.equal(decoder.resume(depth, trace[depth]), own), f"depth {depth}"
        assert torch.equal(decoder.readout(trace[-1]), own)
    assert fingerprint(decoder.model) == before


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_readout_of_the_last_state_is_the_models_probability(family):
    decoder = tiny.decoder(family)
    own = decoder.model(torch.tensor([tiny.IDS])).logits[0].double().softmax(-1)[:, tiny.TARGET]
    read = readout.level(decoder, decoder.trace(tiny.IDS)[-1], tiny.TARGET)
    # Two float32 sums of 64 exponentials.
    assert read == pytest.approx(own.detach().numpy(), abs=1e-6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_gradients_flow_from_the_readout_to_every_depth(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    for depth in range(decoder.blocks + 1):
        state = trace[depth].clone().requires_grad_()
        (slope,) = torch.autograd.grad(decoder.resume(depth, state)[-1].softmax(-1)[tiny.TARGET], state)
        assert slope.isfinite().all()
        assert slope[-1].abs().max() > 0


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_skipping_the_last_block_leaves_the_level_before_it(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    with torch.no_grad():
        skipped = decoder.resume(decoder.blocks, trace[-2])[-1].softmax(-1)[tiny.TARGET]
    level = readout.level(decoder, trace[-2][-1:], tiny.TARGET)[0]
    assert float(skipped) == pytest.approx(level, abs=1e-6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_batch_resumes_as_its_rows_do(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    states = torch.stack([trace[1], trace[1] * 1.1, trace[1] * 0.9])
    with torch.no_grad():
        together = decoder.resume(1, states)
        alone = torch.stack([decoder.resume(1, state) for state in states])
    # Batched matrix products round otherwise, and experts see other batches.
    assert torch.allclose(together, alone, atol=2e-5)
