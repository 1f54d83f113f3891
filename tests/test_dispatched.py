"""Models in several places: the numbers of a model in one place, and the model left as it was."""

from __future__ import annotations

import functools
import gc
import json
import subprocess
import sys
import threading
from pathlib import Path

import accelerate
import numpy as np
import pytest
import torch
from torch import nn

import lenses
from lenses import comparison, dispatched, watermark
from lenses.decoder import Decoder
from lenses.twin import twin
from tests import numbers, tiny

FAMILIES = ("llama", "gpt2", "gemma2", "opt_350m", "bloom", "mixtral")
CPU = torch.device("cpu")  # to accelerate, a device of that name has a cache to clear, and "cpu" has none


WAYS = {
    "in memory": lambda family, folder: accelerate.cpu_offload(tiny.model(family), "cpu"),
    "on disk": lambda family, folder: accelerate.disk_offload(tiny.model(family), str(folder), "cpu"),
    "a block on disk": lambda family, folder: accelerate.dispatch_model(
        tiny.model(family), numbers.spread(family, {".1": "disk"}), offload_dir=str(folder)
    ),
}


@functools.cache
def plain(family: str) -> dict[str, np.ndarray]:
    return numbers.everything(tiny.decoder(family))


def placed(model: nn.Module) -> list[tuple[object, ...]]:
    """Every module's forward, hook and weights: what no call may change."""
    return [
        (
            name,
            module.__dict__.get("forward"),
            module.__dict__.get("_hf_hook"),
            {key: "meta" if p.is_meta else id(p) for key, p in module.named_parameters(recurse=False)},
        )
        for name, module in model.named_modules()
    ]


CASES = [("in memory", family) for family in FAMILIES] + [
    (way, family) for way in ("on disk", "a block on disk") for family in ("llama", "gemma2", "mixtral")
]


@pytest.mark.parametrize(("way", "family"), CASES)
def test_a_model_that_is_offloaded_gives_the_numbers_of_one_that_is_not(family, way, tmp_path):
    model = WAYS[way](family, tmp_path)
    assert dispatched.away(model)
    decoder, whole = Decoder(model, tiny.tokenizer(), family), tiny.decoder(family)
    before = placed(model)
    expected = numbers.exact(whole)
    for name, found in numbers.exact(decoder).items():
        assert torch.equal(found, expected[name]), name
    with torch.no_grad():
        own = model(torch.tensor([tiny.IDS])).logits[0]
    assert torch.equal(decoder.own(tiny.IDS), own)
    others = plain(family)
    for name, found in numbers.everything(decoder).items():
        # The head is called, where in one place another kernel may do its product.
        assert numbers.apart(found, others[name]) < 2e-5, name
    assert placed(model) == before


def test_two_devices_give_the_numbers_of_one_and_never_mix():
    families = ("llama", "gemma2", "bloom")
    run = subprocess.run(
        [sys.executable, "-m", "tests.pretend", *families],
        capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert len(found) == 2 * len(families)
    for way, gaps in found.items():
        for name, gap in gaps.items():
            assert gap < 2e-5, f"{way}: {name}"
        assert all(gaps[name] == 0 for name in ("own", "residual", "readout", "resume 0", "resume 3")), way


class Sum(nn.Module):
    """A module with a weight of its own, on the path to another."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.inner = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x) + self.bias


def test_a_copied_module_runs_its_hook_and_keeps_what_it_fetched_to_itself():
    module = Sum()
    expected = module(torch.ones(3)) + 1
    accelerate.cpu_offload(module, "cpu")
    made = twin(module, {"inner": lambda inner, x, args, kwargs: inner(x) + 1})
    with torch.no_grad():
        assert torch.equal(made(torch.ones(3)), expected)
    assert module.bias.is_meta
    assert made.bias.is_meta
    assert made._parameters is not module._parameters
    # Without its hook the weight would still be nowhere.
    del made.__dict__["forward"]
    with pytest.raises(RuntimeError):
        made(torch.ones(3)).sum().item()


def test_weights_that_are_nowhere_never_become_numbers():
    with torch.device("meta"):
        nowhere = tiny.hf.AutoModelForCausalLM.from_config(tiny.FAMILIES["llama"]()).eval()
    with pytest.raises(lenses.UnsupportedModel, match="meta, which holds no numbers"):
        Decoder(nowhere, tiny.tokenizer(), "nowhere")


def test_a_model_whose_own_code_reads_weights_past_their_modules_is_refused_where_they_are_offloaded():
    class Peeking(type(tiny.model("llama"))):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * (1 + 0 * self.lm_head.weight.sum())
            return output

    model = tiny.model("llama")
    model.__class__ = Peeking
    assert Decoder(model, tiny.tokenizer(), "peeking").readout_gap == 0
    with pytest.raises(lenses.UnsupportedModel, match="peeking"):
        Decoder(accelerate.cpu_offload(model, "cpu"), tiny.tokenizer(), "peeking")


def test_a_recurrence_that_is_offloaded_has_its_states_and_is_refused_gradients_with_the_reason():
    decoder = Decoder(accelerate.cpu_offload(tiny.model("mamba"), "cpu"), tiny.tokenizer(), "mamba")
    expected = numbers.exact(tiny.decoder("mamba"))
    for name, found in numbers.exact(decoder).items():
        assert torch.equal(found, expected[name]), name
    with pytest.raises(lenses.UnsupportedLens, match="gradients go through mamba can't be tried"):
        numbers.lenses(decoder)["conductance"]()


def test_a_block_that_never_runs_is_an_error_also_where_weights_are_offloaded():
    model = accelerate.cpu_offload(tiny.model("llama"), "cpu")
    decoder = Decoder(model, tiny.tokenizer(), "llama")
    blocks, model.model.layers = model.model.layers, nn.ModuleList(model.model.layers[:2])
    with pytest.raises((lenses.UnsupportedModel, AttributeError, IndexError)):
        decoder.trace(tiny.IDS)
    model.model.layers = blocks
    assert decoder.trace(tiny.IDS).blocks == 3


def test_threads_take_turns_on_weights_that_come_and_go():
    decoder = Decoder(accelerate.cpu_offload(tiny.model("llama"), "cpu"), tiny.tokenizer(), "llama")
    expected = tiny.decoder("llama").trace(tiny.IDS).residual
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(20):
                if not torch.equal(decoder.trace(tiny.IDS).residual, expected):
                    wrong.append("other numbers")
        except Exception as error:  # noqa: BLE001 (it is looked at below)
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_gradients_keep_no_offloaded_block_in_memory():
    decoder = Decoder(accelerate.cpu_offload(tiny.model("llama"), "cpu"), tiny.tokenizer(), "llama")
    kept: list[tuple[int, ...]] = []

    def pack(value):
        kept.append(tuple(value.shape))
        return value

    start = decoder.embed(decoder.checked(tiny.IDS))[None].requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        _, logits = decoder.flow(start)
    assert (32, 16) not in kept  # an MLP's matrix
    assert (16, 32) not in kept
    (slope,) = torch.autograd.grad(logits[0, -1].softmax(-1)[tiny.TARGET], start)
    assert slope.abs().max() > 0


# By name


@pytest.fixture(scope="module", params=["llama", "gemma2", "mixtral"])
def saved(request, tmp_path_factory):
    return request.param, tiny.save(request.param, tmp_path_factory.mktemp(request.param))


def test_auto_puts_on_disk_what_has_no_room_and_drops_it_with_the_model(saved, monkeypatch, tmp_path):
    _, folder = saved
    monkeypatch.setenv("LENSES_CACHE", str(tmp_path))
    monkeypatch.setattr(watermark, "ROOM", 0)
    monkeypatch.setattr(watermark, "free", lambda device: 22_000)
    decoder = lenses.load(str(folder), device="auto")
    assert "disk" in decoder.model.hf_device_map.values()
    assert dispatched.away(decoder.model)
    found = comparison.compare(decoder, tiny.PROMPT, target="w5")
    whole = comparison.compare(lenses_of(folder), tiny.PROMPT, target="w5")
    for one, other in zip(found.results, whole.results, strict=True):
        assert numbers.apart(one.attribution.values, other.attribution.values) < 2e-5, one.attribution.lens
    assert len([one for one in (tmp_path / "offload").iterdir() if one.is_dir()]) == 1
    del decoder, found
    gc.collect()
    assert not [one for one in (tmp_path / "offload").iterdir() if one.is_dir()]


def lenses_of(folder: Path) -> Decoder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watermark, "free", lambda device: None)
        return lenses.load(str(folder), device="cpu")


def test_auto_with_room_is_the_plain_model(saved):
    _, folder = saved
    decoder = lenses.load(str(folder), device="auto")
    assert not dispatched.away(decoder.model)
    assert torch.equal(decoder.own(tiny.IDS), lenses_of(folder).own(tiny.IDS))
    assert decoder.device == CPU
    assert np.isfinite(decoder.readout_gap)
