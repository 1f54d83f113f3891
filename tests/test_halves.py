"""Half steps: what attention and MLP gave, on every family, and what is refused."""

from __future__ import annotations

import copy
import dataclasses

import accelerate
import numpy as np
import peft
import pytest
import torch
import transformers as hf
from torch import nn

from lenses import halves, outcome, registry
from lenses.attribution import Verdict, check
from lenses.decoder import Decoder
from lenses.layout import layouts
from lenses.lens import MOST, _problem
from lenses.question import ask
from lenses.sublayers import Call, find
from lenses.target import Target
from tests import naive, tiny

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
PARALLEL = ("gptj", "gpt_neox", "falcon_old", "falcon_new", "codegen", "phi", "cohere", "cohere2")
WHOLE = ("openai-gpt", "opt_350m", "mamba", "falcon_h1")
MIXED = {
    "jamba": ("whole", "sequential", "whole"),
    "qwen3_next": ("whole", "whole", "sequential"),
}
"""Mamba's blocks and linear attention keep a state; OpenAI's first GPT and OPT-350m have norms after sums."""


def kinds(family: str) -> tuple[str, ...]:
    """What each family's three blocks are, pinned by hand."""
    if family in MIXED:
        return MIXED[family]
    return ("parallel" if family in PARALLEL else "whole" if family in WHOLE else "sequential",) * 3


def found(family: str) -> tuple[Decoder, halves.Middle]:
    decoder = tiny.decoder(family)
    return decoder, halves.middle(decoder, decoder.trace(tiny.IDS))


def attribute(family: str, name: str, **options: object):
    decoder = tiny.decoder(family)
    return registry.get(name, **options).attribute(decoder, decoder.trace(tiny.IDS), TARGET)


SPLIT = [family for family in tiny.FAMILIES if family not in WHOLE]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_kind_of_every_block_is_known(family):
    _, middle = found(family)
    assert middle.kinds == kinds(family)
    numbers = middle.states.isfinite()
    for block, kind in enumerate(middle.kinds):
        assert numbers[block].all() if kind != "whole" else not numbers[block].any()


@pytest.mark.parametrize("family", SPLIT)
def test_the_middle_equals_its_naive_twin(family):
    decoder, middle = found(family)
    twin = naive.middles(decoder.model, family, tiny.IDS)
    for block in middle.known:
        assert torch.allclose(middle.states[block], twin[block], atol=1e-5, rtol=1e-5)  # float32


@pytest.mark.parametrize("family", SPLIT)
def test_what_attention_and_mlp_add_is_what_the_block_adds(family):
    decoder, middle = found(family)
    states = decoder.trace(tiny.IDS).residual
    for block in middle.known:
        attention, mlp = halves.added(middle, states[:, 2], 2)[block]
        change = states[block + 1, 2] - states[block, 2]
        assert torch.allclose(attention + mlp, change, atol=1e-5 * float(states.abs().max()))
        assert attention.norm() > 0
        assert mlp.norm() > 0


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_halves_of_a_probability_telescope_to_the_blocks_share(family):
    shares, plain = attribute(family, "ig-lens", halves=True), attribute(family, "ig-lens")
    assert (shares.values == plain.values).all()
    assert plain.halves is None
    assert check(shares).verdict is Verdict.EXACT
    for share, pair, kind in zip(shares.values, shares.halves, kinds(family), strict=True):
        if kind == "whole":
            assert np.isnan(pair).all()
        else:
            assert pair.sum() == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_halves_of_a_logit_add_up_to_the_blocks_part(family):
    parts, plain = attribute(family, "dla", halves=True), attribute(family, "dla")
    assert parts.values == pytest.approx(plain.values, abs=1e-6)
    assert check(parts).verdict is Verdict.EXACT
    assert np.isnan(parts.halves[0]).all(), "the embedding has no halves"
    for part, pair, kind in zip(parts.values[1:], parts.halves[1:], kinds(family), strict=True):
        if kind == "whole":
            assert np.isnan(pair).all()
        else:
            assert pair.sum() == pytest.approx(part, abs=2e-5)  # float32 norm and head


@pytest.mark.parametrize("name", ["ig-lens", "dla"])
@pytest.mark.parametrize("family", ["llama", "falcon_new", "jamba"])
def test_a_half_nudged_by_one_percent_is_broken(family, name):
    a = attribute(family, name, halves=True)
    lie = a.halves.copy()
    place = np.unravel_index(np.nanargmax(np.abs(lie)), lie.shape)
    lie[place] *= 1.01
    judged = check(dataclasses.replace(a, halves=lie))
    assert judged.verdict is Verdict.BROKEN
    assert judged.gap == pytest.approx(lie[place] / 101, rel=1e-3)
    lie[place] = np.nan
    assert check(dataclasses.replace(a, halves=lie)).verdict is Verdict.BROKEN, "one half alone is a lie"


def test_steps_over_several_blocks_have_the_sum_of_their_halves():
    every = attribute("llama", "ig-lens", halves=True)
    chosen = attribute("llama", "ig-lens", halves=True, depths=(2,))
    assert list(chosen.depths) == [2, 3]
    assert chosen.halves[0] == pytest.approx(every.halves[:2].sum(axis=0), abs=1e-15)
    assert (chosen.halves[1] == every.halves[2]).all()
    assert check(chosen).verdict is Verdict.EXACT


def test_a_step_over_a_block_without_halves_has_none():
    chosen = attribute("jamba", "ig-lens", halves=True, depths=(2,))
    assert np.isnan(chosen.halves).all()
    alone = attribute("jamba", "ig-lens", halves=True, depths=(1, 2))
    assert np.isnan(alone.halves).all(axis=1).tolist() == [True, False, True]


def test_a_path_that_starts_elsewhere_has_no_first_halves():
    plain, mean = (attribute("gpt2", "ig-lens", halves=True, baseline=b) for b in ("embedding", "mean"))
    assert np.isnan(mean.halves[0]).all()
    assert (mean.halves[1:] == plain.halves[1:]).all()
    assert check(mean).verdict is Verdict.EXACT


def test_the_gradient_estimator_leaves_halves_out():
    a = attribute("gpt2", "ig-lens", halves=True, estimator="gradient", steps=4)
    assert a.halves is None
    assert "halves" not in a.options


@pytest.mark.parametrize("family", ["gpt2", "opt", "bloom", "mpt", "gemma2", "gpt_oss", "falcon_old"])
def test_no_weight_of_the_mlp_moves_the_middle(family):
    decoder = Decoder(tiny.model(family), tiny.tokenizer(), family)
    trace = decoder.trace(tiny.IDS)
    before = decoder.middles(trace)
    block = decoder.model.get_submodule(layouts(decoder.model)[0].blocks)[1]
    names = ("mlp", "ffn", "fc1", "fc2")
    with torch.no_grad():
        for module in [getattr(block, name) for name in names if hasattr(block, name)]:
            for parameter in module.parameters():
                parameter.mul_(3.0)
    assert torch.equal(decoder.middles(trace), before)
    moved = (decoder.trace(tiny.IDS).residual[2] - trace.residual[2]).abs().max()
    assert moved > 1e-3, "the block itself does depend on it"


@pytest.mark.parametrize("family", ["llama", "opt", "bloom", "mixtral", "falcon_old"])
def test_the_model_is_left_as_it_was(family):
    model = tiny.model(family)
    before = copy.deepcopy(model.state_dict())
    decoder = Decoder(model, tiny.tokenizer(), family)
    halves.middle(decoder, decoder.trace(tiny.IDS))
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in module.__dict__


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gptj", "gemma2", "bloom"])
def test_kinds_are_the_same_in_every_number_format(family, dtype):
    decoder = Decoder(tiny.model(family).to(dtype), tiny.tokenizer(), family)
    assert halves.kinds(decoder) == kinds(family)


MORE = {
    # What the families above leave out: (configuration, kind)
    "a cache that forward has no switch for": (
        lambda: hf.GraniteMoeConfig(**tiny.ONE_KV, num_local_experts=4, num_experts_per_tok=2), "sequential"
    ),
    "experts that hand back flat rows and a choice": (
        lambda: hf.Llama4TextConfig(
            **tiny.HEADS, **tiny.SPECIAL, num_local_experts=2, intermediate_size_mlp=32
        ), "sequential",
    ),
    "a residual that can be parallel": (
        lambda: hf.StableLmConfig(**tiny.TWO_KV, use_parallel_residual=True), "parallel"
    ),
    "a Falcon that is not": (
        lambda: hf.FalconConfig(**tiny.FALCON, parallel_attn=False, alibi=True), "sequential"
    ),
    "a residual that starts after the norm": (
        lambda: hf.BloomConfig(
            vocab_size=64, hidden_size=16, n_layer=3, n_head=2, apply_residual_connection_post_layernorm=True
        ), "whole",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MORE)
def test_other_ways_to_build_a_block_are_told_apart(what):
    config, kind = MORE[what]
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config()).float())
    decoder = Decoder(model, tiny.tokenizer(), what)
    assert halves.kinds(decoder) == (kind,) * 3
    a = registry.get("ig-lens", halves=True).attribute(decoder, decoder.trace(tiny.IDS), TARGET)
    assert check(a).verdict is Verdict.EXACT
    assert np.isfinite(a.halves).all() == (kind != "whole")


@pytest.mark.parametrize("how", ["offloaded", "adapted"])
def test_a_model_that_is_wrapped_has_the_middles_of_the_bare_one(how):
    model = tiny.model("llama")
    if how == "offloaded":
        model = accelerate.cpu_offload(model, execution_device="cpu")
    else:  # new adapters add nothing yet
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "down_proj"])).eval()
    decoder = Decoder(model, tiny.tokenizer(), how)
    assert torch.equal(decoder.middles(decoder.trace(tiny.IDS)), found("llama")[1].states)


@pytest.mark.real
def test_the_default_model_says_paris_by_an_mlp(smol):
    asked = ask(smol, "The capital of France is", target=" Paris")
    a = registry.get("ig-lens", halves=True).attribute(smol, asked.trace, asked.target)
    assert check(a).verdict is Verdict.EXACT
    assert halves.kinds(smol) == ("sequential",) * 30
    assert a.halves.sum() == pytest.approx(a.values.sum(), abs=1e-12)
    assert a.halves[-1] == pytest.approx([0.02985, 0.67234], abs=1e-4)  # attention, MLP of the last block
    twin = naive.middles(smol.model, "llama", asked.trace.ids.tolist())
    middle = halves.middle(smol, asked.trace)
    for block in (0, 15, 29):
        size = float(twin[block].abs().max())  # massive activations: float32 rounds what is near them
        assert torch.allclose(middle.states[block], twin[block], atol=1e-5 * size)


def test_middles_are_made_once_for_a_trace(monkeypatch):
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    first = halves.middle(decoder, trace)
    monkeypatch.setattr(type(decoder), "middles", None)
    assert halves.middle(decoder, trace) is first


def test_halves_go_to_json_and_back():
    from lenses.comparison import comparing, finish

    decoder = tiny.decoder("jamba")
    lenses = [registry.get("ig-lens", halves=True), registry.get("dla", halves=True), registry.get("dla")]
    made = finish(comparing(decoder, ask(decoder, tiny.PROMPT), lenses))
    data = made.to_dict()
    pairs = data["lenses"][0]["halves"]
    assert pairs[0] == pairs[2] == [None, None]
    assert sum(pairs[1]) == pytest.approx(data["lenses"][0]["values"][1], abs=1e-12)
    assert "halves" not in data["lenses"][2]
    again = outcome.read(data)
    assert again.to_dict() == data
    np.testing.assert_array_equal(again.results[1].attribution.halves, made.results[1].attribution.halves)
    assert again.results[2].attribution.halves is None


@pytest.mark.parametrize("value", [1, "yes", None])
def test_an_option_that_is_true_or_false_takes_nothing_else(value):
    # The tests' own type checker would refuse the class itself before the option does.
    assert _problem(bool, 0, MOST, value) == "must be true or false"
    assert _problem(bool, 0, MOST, True) == ""


class Mixer(nn.Module):
    """Each position gets the mean of all up to it: the simplest attention."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 8)

    def forward(self, hidden):
        count = torch.arange(1, hidden.shape[1] + 1)[:, None]
        return self.out(hidden.cumsum(1) / count), None


class Made(nn.Module):
    """A block of which each test changes one thing."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.norm, self.last = how, nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention, self.other = Mixer(), Mixer()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.third, self.inner = nn.Linear(8, 8), nn.ModuleList([self.norm])

    def forward(self, hidden):
        middle = hidden + self.attention(self.norm(hidden))[0]
        if self.how == "parallel":
            return middle + self.mlp(self.last(hidden))
        if self.how == "norm after":
            return self.last(middle + self.mlp(middle))
        if self.how == "a third part":
            return middle + self.mlp(self.last(middle)) + self.third(hidden)
        if self.how == "two that mix":
            return middle + self.other(self.last(middle))[0]
        if self.how == "none that mixes":
            return hidden + self.third(hidden) + self.mlp(self.last(hidden))
        if self.how == "a little more":
            return middle + self.mlp(self.last(middle)) + 1e-4
        if self.how == "scaled by its state":
            return middle + self.mlp(self.last(middle)) * middle[..., :1]
        return middle + 0.5 * self.mlp(self.last(middle))


def made(how: str) -> Call:
    torch.manual_seed(0)
    return Call(Made(how).eval(), (), {})


@pytest.mark.parametrize(("how", "parallel"), [("sequential", False), ("parallel", True)])
@torch.no_grad()
def test_the_parts_of_an_honest_block_are_found(how, parallel):
    parts = find(made(how), torch.zeros(1, 4, 8))
    assert (parts.attention.path, parts.mlp.path, parts.parallel) == ("attention", "mlp", parallel)


@pytest.mark.parametrize(
    "how",
    ["norm after", "a third part", "two that mix", "none that mixes", "a little more", "scaled by its state"],
)
@torch.no_grad()
def test_a_block_that_breaks_the_law_has_no_parts(how):
    call, like = made(how), torch.zeros(1, 4, 8)
    known = find(made("sequential"), like)
    assert find(call, like) is None
    assert find(call, like, [known]) is None, "what was found in another block is proved again"


@torch.no_grad()
def test_parts_are_found_inside_modules_that_wrap_them():
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.norm = Mixer(), nn.LayerNorm(8)

        def forward(self, hidden):
            middle = hidden + self.attention(hidden)[0]
            return middle, self.norm(middle)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.list = Inner(), nn.ModuleList([nn.Linear(8, 8)])

        def forward(self, hidden):
            middle, normed = self.inner(hidden)
            return middle + self.list[0](normed)

    parts = find(Call(Outer().eval(), (), {}), torch.zeros(1, 4, 8))
    assert (parts.attention.path, parts.mlp.path) == ("inner.attention", "list.0")
