"""What the target loses without blocks or halves of them, against whole runs of broken copies."""

from __future__ import annotations

import copy
import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console

import lenses
from lenses import ablation, charts, halves, outcome, registry, tables, terminal, updates
from lenses.attribution import Claim, Form, Unit, Verdict, check
from lenses.receipt import receipt
from lenses.target import Target
from tests import naive, tiny
from tests.contract import COMPARISON, faults, parsed
from tests.test_cases import SIX_DIGITS, SKIPPED

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
LONGER, SHORTER = [7, 7, 30, 2, 51, 9, 11, 4], [12, 33, 6]
"""Two other prompts: aligned at the end, one covers the first and one does not."""
HALVES = ("attention", "mlp")
SPLIT = [family for family in naive.SUBLAYERS if family != "jamba"]
LAST = pytest.mark.parametrize("last", [False, True])


def asked(family: str, ids: list[int] = tiny.IDS):
    decoder = tiny.decoder(family)
    return decoder, decoder.trace(ids), Target(len(ids) - 1, tiny.TARGET)


def twin(family: str, span: int = 1, last: bool = False, half: str | None = None, added=None) -> list[float]:
    """One whole run for each span."""
    model = tiny.decoder(family).model
    part = None if half is None else naive.SUBLAYERS[family][HALVES.index(half)]
    changed = 1 if last else len(tiny.IDS)
    if added is not None:
        changed = min(changed, added.shape[1])
        added = added[:, -changed:]
    found = []
    for start in range(tiny.decoder(family).blocks - span + 1):
        logits = naive.ablated(model, tiny.IDS, list(range(start, start + span)), changed, added, part)
        found.append(float(naive.chance(logits.double(), [tiny.TARGET])))
    return found


def naive_updates(family: str, ids: list[int], half: str | None) -> torch.Tensor:
    model = tiny.decoder(family).model
    states = torch.stack(naive.states(model, ids))
    if half is None:
        return states[1:] - states[:-1]
    middles = torch.stack(naive.middles(model, family, ids))
    return middles - states[:-1] if half == "attention" else states[1:] - middles


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_drop_of_the_last_block_is_its_share(family):
    decoder, trace, target = asked(family)
    drops = registry.get("ablation").attribute(decoder, trace, target)
    shares = registry.get("ig-lens").attribute(decoder, trace, target)
    assert drops.end - drops.values[-1] == pytest.approx(shares.end - shares.values[-1], abs=SIX_DIGITS)
    assert (drops.start, drops.end) == (shares.start, shares.end)
    assert drops.depths.tolist() == shares.depths.tolist()


@pytest.mark.parametrize("family", SKIPPED)
def test_drops_are_from_the_models_own_probability_to_the_known_values(family):
    decoder, trace, target = asked(family)
    drops = registry.get("ablation").attribute(decoder, trace, target)
    assert drops.end - drops.values == pytest.approx(np.array(SKIPPED[family]), abs=SIX_DIGITS)


@LAST
@pytest.mark.parametrize("span", [1, 2, 3])
@pytest.mark.parametrize("family", tiny.SOME)
def test_a_span_of_blocks_is_left_out_together(family, span, last):
    found = ablation.skipped(*asked(family), span=span, last=last)
    assert found == pytest.approx(twin(family, span, last), abs=SIX_DIGITS)


@LAST
@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("family", SPLIT)
def test_a_half_is_left_out_as_in_a_copy_whose_module_says_nothing(family, half, span, last):
    found = ablation.skipped(*asked(family), half=half, span=span, last=last)
    assert found == pytest.approx(twin(family, span, last, half), abs=SIX_DIGITS)


@pytest.mark.parametrize("family", ["bloom", "mpt", "cohere", "olmo2", "jamba", "mamba", "opt_350m"])
def test_skipping_the_mlp_is_going_on_from_the_middle(family):
    decoder, trace, target = asked(family)
    middle = halves.middle(decoder, trace)
    found = ablation.skipped(decoder, trace, target, half="mlp")
    assert np.isfinite(found).nonzero()[0].tolist() == middle.known
    for block in middle.known:
        logits = decoder.resume(block + 1, middle.states[block], [target.position]).detach()
        assert found[block] == pytest.approx(float(naive.chance(logits.double(), [5])), abs=SIX_DIGITS)


@LAST
@pytest.mark.parametrize("half", [None, *HALVES])
@pytest.mark.parametrize("ids", [LONGER, SHORTER], ids=["longer", "shorter"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "granite", "falcon_new"])
def test_the_updates_of_another_prompt_are_put_in_at_the_same_places_from_the_end(family, ids, half, last):
    decoder, trace, target = asked(family)
    instead = updates.other(*asked(family, ids), half=half)
    added = naive_updates(family, ids, half)
    for span in (1, 2):
        found = ablation.replaced(decoder, trace, target, instead, span=span, last=last)
        assert found == pytest.approx(twin(family, span, last, half, added), abs=SIX_DIGITS)


@LAST
@pytest.mark.parametrize("half", [None, *HALVES])
@pytest.mark.parametrize("family", ["gpt2", "gptj"])
def test_the_mean_over_prompts_is_that_of_loops(family, half, last):
    prompts = [tiny.IDS, LONGER, SHORTER]
    instead = updates.mean(tiny.decoder(family), [asked(family, ids)[1:] for ids in prompts], half)
    each = [naive_updates(family, ids, half) for ids in prompts]
    first = torch.stack([one[:, 0] for one in each]).mean(0)
    others = torch.stack([one[:, k] for one in each for k in range(1, one.shape[1])]).mean(0)
    at_target = torch.stack([one[:, -1] for one in each]).mean(0)
    added = torch.stack([at_target] if last else [first, *[others] * (len(tiny.IDS) - 1)], dim=1)
    for span in (1, 2):
        found = ablation.replaced(*asked(family), instead, span=span, last=last)
        assert found == pytest.approx(twin(family, span, last, half, added), abs=SIX_DIGITS)


@LAST
@pytest.mark.parametrize("half", [None, *HALVES])
@pytest.mark.parametrize("family", ["llama", "falcon_new", "granite"])
def test_a_prompt_given_its_own_updates_is_left_as_it_was(family, half, last):
    decoder, trace, target = asked(family)
    instead = updates.other(decoder, trace, target, half)
    own = registry.get("ablation").attribute(decoder, trace, target).end
    for span in (1, 3):
        found = ablation.replaced(decoder, trace, target, instead, span=span, last=last)
        assert found == pytest.approx(np.full(4 - span, own), abs=SIX_DIGITS)
    nudged = updates.Other(half, 1.1 * instead.updates)
    assert ablation.replaced(decoder, trace, target, nudged, last=last) != pytest.approx(own, abs=SIX_DIGITS)


@pytest.mark.parametrize("half", [None, *HALVES])
@pytest.mark.parametrize("memory", [1, 7, 12])
@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_memory_changes_no_number(family, memory, half):
    given = asked(family)
    whole = ablation.skipped(*given, half=half, span=2)
    assert ablation.skipped(*given, half=half, span=2, memory=memory) == pytest.approx(whole, abs=1e-6)


def test_a_word_of_several_tokens_is_taken_as_one():
    decoder = tiny.decoder("llama")
    trace, word = decoder.trace([*tiny.IDS, 5, 30]), Target(5, 5, (30, 11))
    for half in (None, *HALVES):
        part = None if half is None else naive.SUBLAYERS["llama"][HALVES.index(half)]
        for last in (False, True):
            found = ablation.skipped(decoder, trace, word, half=half, last=last, span=2)
            for start in range(2):
                ids, changed = trace.ids.tolist(), 3 if last else 8
                logits = naive.ablated(decoder.model, ids, [start, start + 1], changed, part=part)
                expected = float(naive.chance(logits.double(), [5, 30, 11]))
                assert found[start] == pytest.approx(expected, rel=1e-4)


def test_later_tokens_have_no_part_in_a_half():
    decoder = tiny.decoder("gptj")
    early = Target(2, 5)
    for half in HALVES:
        found, cut = (
            ablation.skipped(decoder, decoder.trace(ids), early, half=half)
            for ids in (tiny.IDS, tiny.IDS[:3])
        )
        assert found == pytest.approx(cut, abs=1e-6)


def test_another_prompt_is_never_the_same_one_and_always_the_same_for_a_seed():
    for count in (2, 3, 50):
        drawn = updates.partners(count, seed=4)
        assert drawn == updates.partners(count, seed=4)
        assert all(one != k and 0 <= one < count for k, one in enumerate(drawn))
    assert updates.partners(50, 1) != updates.partners(50, 2)
    with pytest.raises(lenses.BadPrompt, match="at least two of them, not 1"):
        updates.partners(1)


def test_a_mean_of_one_prompt_or_of_single_tokens_is_refused():
    decoder, trace, target = asked("llama")
    with pytest.raises(lenses.BadPrompt, match="at least two of them, not 1"):
        updates.mean(decoder, [(trace, target)])
    with pytest.raises(lenses.BadPrompt, match="at least two of them, not 0"):
        updates.mean(decoder, [])
    single = asked("llama", [3])[1:]
    with pytest.raises(lenses.BadPrompt, match="all have one"):
        updates.mean(decoder, [single, single])


@pytest.mark.parametrize("span", [0, 4])
def test_a_span_that_does_not_fit_is_refused(span):
    with pytest.raises(lenses.BadOption, match="which has 3"):
        ablation.skipped(*asked("llama"), span=span)


def compared(family: str, **options: object):
    lens = registry.get("ablation", **options)
    return lenses.compare(tiny.decoder(family), tiny.PROMPT, target="w5", lenses=[lens, "logit-lens"])


def test_drops_claim_nothing_and_are_named_and_drawn_as_what_they_are():
    found = compared("llama", span=2)
    (result, _) = found.results
    a = result.attribution
    assert (a.claim, a.unit, a.form) == (Claim.LEVEL, Unit.DROP, Form.DROP)
    assert check(a).verdict is Verdict.NOT_CLAIMED
    assert receipt(result).startswith("not claimed: drops from 0.0866")
    assert a.depths.tolist() == [2, 3], "a span stands at the depth after it"
    assert tables.came_from(a) == [0, 1]
    spec = charts.spec(charts.card(found, result))
    assert spec["layer"][0]["mark"]["type"] == "bar"
    assert spec["layer"][0]["encoding"]["y"]["title"] == "drop of p"


def test_blocks_without_halves_are_blank_everywhere():
    found = compared("jamba", kind="mlp")
    data = parsed(json.dumps(found.to_dict(), allow_nan=False))
    assert faults(data, COMPARISON) == []
    known = [value is not None for value in data["lenses"][0]["values"]]
    assert known == [False, True, False]
    assert outcome.read(data).to_dict() == data
    charts.card(found, found.results[0]).to_dict(validate=True)
    said = io.StringIO()
    terminal.show(found, Console(file=said, width=120))
    assert "nan" not in said.getvalue()


def test_a_model_without_halves_is_told_to_skip_whole_blocks():
    found = compared("mamba", kind="attention")
    assert [result.attribution.lens for result in found.results] == ["logit-lens"]
    assert any("leave out whole blocks" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("kind", "silent"), [("skip", ("self_attn.o_proj", "mlp.down_proj")), ("mlp", ("mlp.down_proj",))]
)
def test_what_writes_nothing_has_no_drop(kind, silent):
    model = tiny.model("llama")
    with torch.no_grad():
        for name in silent:
            model.get_submodule(f"model.layers.1.{name}").weight.zero_()
    decoder = lenses.Decoder(model, tiny.tokenizer())
    lens = registry.get("ablation", kind=kind)
    drops = lens.attribute(decoder, decoder.trace(tiny.IDS), TARGET).values
    assert abs(drops[1]) < 1e-7  # the head's product in another batch
    assert (abs(drops[[0, 2]]) > 1e-5).all()


def test_leaving_out_leaves_the_model_as_it_was():
    from tests.test_families import fingerprint

    decoder, trace, target = asked("falcon_new")
    before, states = fingerprint(decoder.model), copy.deepcopy(trace.residual)
    for half in (None, *HALVES):
        ablation.skipped(decoder, trace, target, half=half, span=2)
        ablation.replaced(decoder, trace, target, updates.other(decoder, trace, target, half), last=True)
    assert fingerprint(decoder.model) == before
    assert torch.equal(trace.residual, states)


def test_progress_is_told_and_work_can_be_given_up():
    steps = ablation.ablating(*asked("llama"), memory=1)
    assert [(step.done, step.total) for step in steps] == [(0, 3), (0, 3), (1, 3), (2, 3)]


def test_the_default_model_without_each_block(smol):
    question = lenses.question.ask(smol, "The capital of France is", target=" Paris")
    drops = registry.get("ablation").attribute(smol, question.trace, question.target)
    assert len(drops.values) == smol.blocks
    for block in (0, 15, 29):
        logits = naive.ablated(smol.model, question.prompt.ids, [block], len(question.prompt.ids))
        expected = float(logits[-1].double().softmax(-1)[7042])
        assert drops.end - drops.values[block] == pytest.approx(expected, abs=1e-5)
    middle = ablation.skipped(smol, question.trace, question.target, half="attention")[15]
    logits = naive.ablated(smol.model, question.prompt.ids, [15], 5, part="self_attn")
    assert middle == pytest.approx(float(logits[-1].double().softmax(-1)[7042]), abs=1e-5)
