"""On a GPU: the CPU's numbers, the model's own probabilities, and memory that is given back.

Skipped where torch sees no CUDA device; those of two devices where it sees one.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from accelerate import cpu_offload, dispatch_model

import lenses
from lenses import comparison, dispatched, watermark
from lenses.decoder import Decoder
from lenses.proof import TOLERANCE
from lenses.ui import models
from tests import numbers, tiny
from tests.ui.test_models import load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two CUDA devices")
FAMILIES = ("llama", "gpt2", "gemma2", "opt", "bloom", "mixtral", "falcon_new", "mamba")
EACH = pytest.mark.parametrize("family", FAMILIES)
NEAR = 1e-4
"""How far two processors' float32 may be apart, as a part of the largest number."""


@pytest.fixture(autouse=True, scope="module")
def _whole_float32():
    """Without TF32, which keeps 10 bits of a product's factors; convolutions have a switch of their own."""
    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = False
    yield
    for place, was in zip(places, before, strict=True):
        place.allow_tf32 = was


def on(device: str, family: str, dtype: torch.dtype = torch.float32) -> Decoder:
    return Decoder(tiny.model(family).to(device, dtype), tiny.tokenizer(), family)


@EACH
def test_states_put_back_in_give_the_models_logits(family):
    decoder = on("cuda", family)
    assert decoder.device.type == "cuda"
    trace = decoder.trace(tiny.IDS)
    assert trace.residual.device == decoder.device
    own = decoder.own(tiny.IDS)
    with torch.no_grad():
        for depth in range(decoder.blocks + 1):
            # One kernel with the same shape and the same numbers.
            assert torch.equal(decoder.resume(depth, trace[depth]), own), depth
    assert decoder.readout_gap <= TOLERANCE[torch.float32]


@EACH
def test_every_number_is_the_cpus(family):
    expected, found = numbers.everything(tiny.decoder(family)), numbers.everything(on("cuda", family))
    for name, value in expected.items():
        assert numbers.apart(found[name], value) < NEAR, name


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_the_cpus_float32(family, dtype):
    decoder = on("cuda", family, dtype)
    assert decoder.readout_gap <= TOLERANCE[dtype]
    found = numbers.passes(decoder)["levels"]()
    expected = numbers.passes(tiny.decoder(family))["levels"]()
    # What these formats make of the model itself: 8 and 11 bits.
    assert np.abs(found - expected).max() < {torch.bfloat16: 0.06, torch.float16: 0.008}[dtype]


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_default_model_says_paris(smol, dtype):
    decoder = lenses.load(device="cuda", dtype=dtype)
    given = dict(
        target=" Paris", lenses=["ig-lens", "logit-lens", "dla", "conductance", "layer-ig", "ablation"]
    )
    found = comparison.compare(decoder, "The capital of France is", **given)
    expected = comparison.compare(smol, "The capital of France is", **given)
    near = NEAR if dtype == "float32" else 0.05
    assert found.probability == pytest.approx(expected.probability, abs=near)
    for one, other in zip(found.results, expected.results, strict=True):
        name = one.attribution.lens
        if dtype == "float32":
            assert numbers.apart(one.attribution.values, other.attribution.values) < 1e-3, name
        assert np.isfinite(one.attribution.values).all()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "mamba"])
def test_weights_in_memory_that_run_on_the_device_give_the_cpus_numbers(family):
    model = cpu_offload(tiny.model(family), torch.device("cuda", 0))
    decoder = Decoder(model, tiny.tokenizer(), family)
    assert dispatched.away(model)
    assert decoder.device == torch.device("cuda", 0)
    expected = numbers.everything(tiny.decoder(family))
    for name, found in numbers.everything(decoder).items():
        assert numbers.apart(found, expected[name]) < NEAR, name


@TWO
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mixtral"])
@pytest.mark.parametrize("ends", [(".1",), (".1", ".2", "norm", "ln_f", "lm_head")])
def test_two_devices_give_the_numbers_of_one(family, ends):
    model = tiny.model(family)
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        ends = [end for end in ends if end != "lm_head"]  # one tensor can't stand on two devices
    places = numbers.spread(family, dict.fromkeys(ends, 1), 0)
    decoder = Decoder(dispatch_model(model, places), tiny.tokenizer(), family)
    assert decoder.device == torch.device("cuda", 0)
    assert {p.device.index for p in decoder.model.parameters()} == {0, 1}
    expected = numbers.everything(tiny.decoder(family))
    for name, found in numbers.everything(decoder).items():
        assert numbers.apart(found, expected[name]) < NEAR, name


@TWO
def test_auto_uses_both_devices_where_one_has_no_room(tmp_path, monkeypatch):
    folder = str(tiny.save("llama", tmp_path))
    monkeypatch.setattr(watermark, "allowances", lambda: {0: 20_000, 1: 1 << 30, "cpu": 1 << 30})
    decoder = lenses.load(folder, device="auto")
    assert {0, 1} <= set(decoder.model.hf_device_map.values())
    expected = numbers.everything(tiny.decoder("llama"))
    for name, found in numbers.everything(decoder).items():
        assert numbers.apart(found, expected[name]) < NEAR, name


def test_a_model_that_leaves_the_shelf_gives_its_memory_back(tmp_path, fresh):
    def held() -> int:
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    folders = {family: str(tiny.save(family, tmp_path / family)) for family in ("llama", "gpt2", "bloom")}
    before, after = held(), {}
    for family in ("llama", "gpt2", "bloom", "llama"):
        load(models.choice_of(folders[family], device="cuda"))
        after.setdefault(family, []).append(held() - before)
    first, last = after["llama"]
    assert 0 < last <= first + (1 << 16)  # cuBLAS keeps a workspace that the first model made


def test_loading_needs_no_room_in_memory_for_what_goes_to_the_device(tmp_path):
    decoder = lenses.load(str(tiny.save("llama", tmp_path)), device="cuda")
    assert {p.device.type for p in decoder.model.parameters()} == {"cuda"}
    assert {b.device.type for b in decoder.model.buffers()} == {"cuda"}
    assert not any("forward" in module.__dict__ for module in decoder.model.modules())


def test_what_is_free_on_the_device_is_known():
    there = watermark.free(torch.device("cuda", 0))
    assert there is not None
    assert 0 < there <= torch.cuda.get_device_properties(0).total_memory
    assert set(watermark.allowances()) >= {0, "cpu"}
