"""A wave is many resumed runs at once: the same numbers as each alone, at any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lenses import ablation, paths, readout, registry
from lenses.target import Target
from tests import naive, tiny

ALONE = {"gpt_bigcode", "openai-gpt", "bloom", "xglm"}
"""Families whose blocks need a mask for each sequence of a batch, so that none can join later."""
TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_wave_is_each_of_its_runs_alone(family):
    decoder = tiny.decoder(family)
    assert decoder.joins == (family not in ALONE)
    trace = decoder.trace(tiny.IDS)
    if not decoder.joins:
        return
    joining = {depth: torch.stack([trace[depth], trace[depth].flip(0)]) for depth in (0, 2, decoder.blocks)}
    with torch.no_grad():
        found = decoder.wave(joining, [2, 5])
        alone = [decoder.resume(depth, states, [2, 5]) for depth, states in joining.items()]
    torch.testing.assert_close(found, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depths", [(-1, 1), (1, 99)])
def test_a_depth_that_is_not_there_is_refused(depths):
    decoder = tiny.decoder("llama")
    state = decoder.trace(tiny.IDS)[1][None]
    with pytest.raises(ValueError, match="are not all within"):
        decoder.wave(dict.fromkeys(depths, state))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_skipping_a_block_is_resuming_after_it_with_what_came_before(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    found = ablation.skipped(decoder, trace, TARGET)
    for block in range(decoder.blocks):
        logits = decoder.resume(block + 1, trace[block], [TARGET.position])
        assert found[block] == pytest.approx(float(logits.double().softmax(-1)[0, TARGET.token]), abs=1e-6)
    below = readout.level(decoder, trace[-2][[TARGET.position]], TARGET.token)
    assert found[-1] == pytest.approx(below[0], abs=1e-6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("position", [0, 5])
def test_skipping_at_the_last_position_leaves_the_earlier_ones_as_they_were(family, position):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    found = ablation.skipped(decoder, trace, Target(position, 9), last=True)
    for block in range(decoder.blocks):
        state = trace[block + 1].clone()
        state[position] = trace[block][position]
        logits = decoder.resume(block + 1, state, [position])
        assert found[block] == pytest.approx(float(logits.double().softmax(-1)[0, 9]), abs=2e-6)


def test_the_last_position_runs_alone_where_the_model_keeps_keys_and_values(monkeypatch):
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    ran = []
    wave = decoder.wave

    def watched(joining, *args, **kwargs):
        ran.append({state.shape[1] for state in joining.values()})
        return wave(joining, *args, **kwargs)

    monkeypatch.setattr(decoder, "wave", watched)
    found = ablation.skipped(decoder, trace, TARGET, last=True)
    assert ran == [{1}]
    # A way that gives other numbers is not taken.
    monkeypatch.setattr(ablation, "SAME", -1.0)
    assert ablation.skipped(decoder, trace, TARGET, last=True) == pytest.approx(found, abs=1e-6)
    assert ran[1:] == [{1}, {len(tiny.IDS)}]


@pytest.mark.parametrize("memory", [1, 7, 12, 1000])
@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_the_memory_of_an_ablation_changes_no_number(family, memory):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    whole = ablation.skipped(decoder, trace, TARGET)
    assert ablation.skipped(decoder, trace, TARGET, memory=memory) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("family", tiny.SOME)
def test_layer_ig_in_a_wave_is_captums_depth_by_depth(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    wave, captum = (
        registry.get("layer-ig", engine=engine, steps=7).attribute(decoder, trace, TARGET).positions
        for engine in ("wave", "captum")
    )
    assert wave == pytest.approx(captum, abs=1e-5 * np.abs(captum).max())


def test_the_last_digits_of_layer_ig_are_roundings_of_float32():
    model = tiny.model("llama").double()
    from lenses import Decoder

    decoder = Decoder(model, tiny.tokenizer())
    trace = decoder.trace(tiny.IDS)
    wave, captum = (
        registry.get("layer-ig", engine=engine, steps=7).attribute(decoder, trace, TARGET).positions
        for engine in ("wave", "captum")
    )
    assert wave == pytest.approx(captum, abs=1e-7 * np.abs(captum).max())


@pytest.mark.parametrize("name", ["layer-ig", "conductance"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom", "mixtral", "mamba"])
@pytest.mark.parametrize("memory", [1, 40_000, 200_000])
def test_little_memory_changes_no_number_of_an_integral(family, name, memory, monkeypatch):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    lens = registry.get(name, steps=5)
    whole = lens.attribute(decoder, trace, TARGET).positions
    recomputed = []
    real = naive.torch.utils.checkpoint.checkpoint
    monkeypatch.setattr(
        "lenses.passes.checkpoint",
        lambda *args, **kwargs: recomputed.append(1) or real(*args, **kwargs),
    )
    monkeypatch.setattr(paths, "MEMORY", memory)
    found = lens.attribute(decoder, trace, TARGET).positions
    assert found == pytest.approx(whole, abs=1e-5 * np.abs(whole).max())
    if memory == 1 and (name == "conductance" or decoder.joins):
        assert recomputed
