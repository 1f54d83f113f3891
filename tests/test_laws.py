"""The laws of every lens, on families that differ where lenses could go wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lenses
from lenses import comparison, readout, registry
from lenses.attribution import Claim, Verdict, check
from lenses.lens import fields
from lenses.target import Target
from tests import naive, tiny

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)


def attribute(family: str, name: str, **options: object) -> lenses.attribution.Attribution:
    decoder = tiny.decoder(family)
    return tiny.lens(family, name, **options).attribute(decoder, decoder.trace(tiny.IDS), TARGET)


@pytest.mark.parametrize("name", registry.LENSES)
@pytest.mark.parametrize("family", tiny.SOME)
def test_every_lens_keeps_the_contract_of_its_claim(family, name):
    found = attribute(family, name)
    decoder = tiny.decoder(family)
    assert found.values.dtype == np.float64
    assert found.values.shape == found.depths.shape
    assert np.isfinite(found.values).all()
    assert found.claim is registry.LENSES[name].claim
    assert list(found.depths) == sorted(set(found.depths))
    assert found.depths[-1] == decoder.blocks
    if found.claim is Claim.WITHIN:
        assert found.positions.shape == (len(found.depths), len(tiny.IDS))
        assert found.positions.sum(axis=1) == pytest.approx(found.values)
    if not found.quadrature and found.claim is not Claim.LEVEL:
        assert check(found).verdict is Verdict.EXACT


@pytest.mark.parametrize("name", registry.LENSES)
@pytest.mark.parametrize("family", ["gpt2", "mamba"])
def test_the_future_has_no_part_in_an_answer(family, name):
    decoder = tiny.decoder(family)
    early = Target(2, tiny.TARGET)
    whole = tiny.lens(family, name).attribute(decoder, decoder.trace(tiny.IDS), early)
    cut = tiny.lens(family, name).attribute(decoder, decoder.trace(tiny.IDS[:3]), early)
    if name in ("layer-ig", "conductance"):
        # Their baseline is the mean of the prompt, which the later tokens are part of.
        options = {"baseline": "token", "token": 7}
        whole = registry.get(name, **options).attribute(decoder, decoder.trace(tiny.IDS), early)
        cut = registry.get(name, **options).attribute(decoder, decoder.trace(tiny.IDS[:3]), early)
        assert (whole.positions[:, 3:] == 0).all()
    assert whole.values == pytest.approx(cut.values, abs=1e-6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_logit_lens_equals_its_naive_twin(family):
    found = attribute(family, "logit-lens")
    twin = naive.levels(tiny.decoder(family).model, tiny.IDS, tiny.TARGET)
    assert found.values == pytest.approx(twin, abs=1e-6)  # float32 softmax of 64 logits


@pytest.mark.parametrize("baseline", ["embedding", "mean", "zero"])
@pytest.mark.parametrize("family", tiny.SOME)
def test_ig_lens_is_the_difference_of_the_logit_lens_at_any_step_count(family, baseline):
    shares = attribute(family, "ig-lens", baseline=baseline)
    again = attribute(family, "ig-lens", baseline=baseline, steps=3)
    levels = attribute(family, "logit-lens").values
    assert (shares.values == again.values).all()
    assert shares.values[1:] == pytest.approx(np.diff(levels[1:]), abs=1e-7)
    assert shares.start + shares.values.cumsum() == pytest.approx(levels[1:], abs=1e-7)
    assert abs(check(shares).gap) <= 1e-12


@pytest.mark.parametrize("depths", [(0, 3), (1,), (2, 1), (3,), (0, 1, 2, 3)])
def test_any_chosen_depths_add_up_to_the_same_whole(depths):
    every, chosen = attribute("llama", "ig-lens"), attribute("llama", "ig-lens", depths=depths)
    assert list(chosen.depths) == sorted({*depths, 3} - {0})
    assert chosen.values.sum() == pytest.approx(every.values.sum(), abs=1e-9)
    merged = np.array([every.values[:depth].sum() for depth in chosen.depths])
    assert chosen.values.cumsum() == pytest.approx(merged, abs=1e-7)


@pytest.mark.parametrize("rule", ["gauss-legendre", "midpoint", "trapezoid"])
@pytest.mark.parametrize("family", tiny.SOME)
def test_the_gradient_estimator_approaches_the_observed_shares_as_steps_grow(family, rule):
    observed = attribute(family, "ig-lens").values
    gaps = [
        np.abs(attribute(family, "ig-lens", estimator="gradient", steps=m, rule=rule).values - observed).max()
        for m in (2, 256)
    ]
    assert gaps[1] < 1e-3 * np.abs(observed).max() + 1e-6
    assert gaps[1] < gaps[0]


def test_few_steps_of_the_gradient_estimator_are_called_not_converged():
    coarse = attribute("llama", "ig-lens", estimator="gradient", steps=1)
    fine = attribute("llama", "ig-lens", estimator="gradient", steps=256)
    assert check(coarse).verdict is Verdict.NOT_CONVERGED
    assert check(fine).verdict is Verdict.CONVERGED


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_dla_parts_and_constant_are_the_heads_raw_logit(family):
    decoder = tiny.decoder(family)
    found = attribute(family, "dla")
    raw = decoder.head(decoder.before_head(decoder.trace(tiny.IDS)[-1][-1:]), tiny.TARGET)[0]
    assert found.end == pytest.approx(float(raw), abs=1e-6)
    assert found.values.sum() + found.constant == pytest.approx(float(raw), abs=2e-5)  # float32 norm
    assert list(found.depths) == [0, 1, 2, 3]


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "opt"])
def test_a_block_that_writes_nothing_has_share_0(family):
    model = tiny.model(family)
    path = {
        "gpt2": "transformer.h",
        "bloom": "transformer.h",
        "llama": "model.layers",
        "opt": "model.decoder.layers",
    }
    with torch.no_grad():
        for name, parameter in model.get_submodule(f"{path[family]}.1").named_parameters():
            if any(part in name for part in ("c_proj", "dense", "o_proj", "out_proj", "down_proj", "fc2")):
                parameter.zero_()
    decoder = lenses.Decoder(model, tiny.tokenizer(), family)
    trace = decoder.trace(tiny.IDS)
    assert registry.get("ig-lens").attribute(decoder, trace, TARGET).values[1] == 0
    assert registry.get("dla").attribute(decoder, trace, TARGET).values[2] == 0


@pytest.mark.parametrize("family", ["gpt2", "opt_350m"])
def test_layer_ig_approaches_the_whole_change_at_every_depth(family):
    found = attribute(family, "layer-ig", steps=600)
    assert found.values == pytest.approx(np.full(3, found.end - found.start), rel=0.02, abs=1e-6)
    assert check(found).verdict in (Verdict.CONVERGED, Verdict.NOT_CONVERGED)


@pytest.mark.parametrize(("family", "total"), [("llama", 0.004448), ("gpt2", 0.000355)])
def test_layer_ig_from_a_repeated_token_gives_the_known_totals(family, total):
    found = attribute(family, "layer-ig", baseline="token", token=0, steps=100)
    assert found.end - found.start == pytest.approx(total, abs=1e-6)
    assert found.values == pytest.approx(np.full(3, total), abs=2e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mamba"])
def test_layer_ig_equals_its_naive_twin(family):
    found = attribute(family, "layer-ig", steps=5)
    twin = naive.layer_ig(tiny.decoder(family).model, tiny.IDS, [tiny.TARGET], steps=5)
    assert found.positions == pytest.approx(twin, abs=1e-5 * max(1, np.abs(twin).max()))


@pytest.mark.parametrize("family", tiny.SOME)
def test_conductance_in_one_sweep_equals_captum_depth_by_depth(family):
    sweep = attribute(family, "conductance", steps=7)
    captum = attribute(family, "conductance", steps=7, engine="captum")
    twin = naive.conductance(tiny.decoder(family), tiny.IDS, [tiny.TARGET], steps=7)
    largest = np.abs(captum.positions).max()
    assert sweep.positions == pytest.approx(captum.positions, abs=1e-5 * largest)
    assert sweep.positions == pytest.approx(twin, abs=1e-4 * largest)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("name", ["layer-ig", "conductance"])
def test_the_batch_size_changes_no_number(name, size):
    whole = attribute("llama", name, steps=7)
    parts = attribute("llama", name, steps=7, internal_batch_size=size)
    assert parts.positions == pytest.approx(whole.positions, abs=1e-5 * np.abs(whole.positions).max())


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, f.name) for name, lens in registry.LENSES.items() for f in fields(lens) if f.metadata["least"]],
)
@pytest.mark.parametrize("value", [0, -1])
def test_a_count_below_its_least_is_refused(name, option, value):
    with pytest.raises(lenses.BadOption, match=f"{name}: {option} must be a whole number of at least 1"):
        registry.get(name, **{option: value})


@pytest.mark.parametrize("family", tiny.SOME)
@pytest.mark.parametrize("budget", [1, 700, 4096, 1 << 20])
def test_the_readouts_chunk_size_changes_no_number(family, budget):
    decoder = tiny.decoder(family)
    rows = decoder.trace(tiny.IDS).residual.flatten(0, 1)
    targets = torch.arange(len(rows)) % decoder.vocabulary
    whole, parts = (readout.read(decoder, rows, targets, top=3, budget=b) for b in (1 << 27, budget))
    assert parts.probability == pytest.approx(whole.probability, abs=1e-6)
    assert parts.log_probability == pytest.approx(whole.log_probability, abs=1e-5)
    assert parts.logit == pytest.approx(whole.logit, abs=1e-5)
    assert parts.top_probability == pytest.approx(whole.top_probability, abs=1e-6)


@pytest.mark.parametrize("name", registry.LENSES)
def test_a_lens_leaves_the_model_as_it_was(name):
    from tests.test_families import fingerprint

    decoder = tiny.decoder("gemma2")  # its head is tied to its embedding
    ids = torch.tensor([tiny.IDS])
    before, own = fingerprint(decoder.model), decoder.model(ids).logits
    for engine in ("sweep", "captum") if name == "conductance" else (None,):
        attribute("gemma2", name, **({"engine": engine} if engine else {}))
    assert fingerprint(decoder.model) == before
    assert torch.equal(decoder.model(ids).logits, own)


def test_threads_on_one_decoder_get_the_serial_answers():
    from concurrent.futures import ThreadPoolExecutor

    decoder = tiny.decoder("llama")
    prompts = [f"w{a} w{a + 7} w{a + 3}" for a in range(3, 8)]  # four times each: ten a thread

    def values(prompt):
        chosen = [tiny.lens("llama", name) for name in registry.LENSES]
        found = comparison.compare(decoder, prompt, lenses=chosen)
        return [result.attribution.values for result in found.results]

    serial = [values(prompt) for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        threaded = list(pool.map(values, prompts * 4))
    for found, expected in zip(threaded, serial * 4, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert (one == other).all()
