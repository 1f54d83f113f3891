"""A map is one question a token: its columns are what the lens says of each."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
import transformers as hf

import lenses
from lenses import readout, registry, surface, tokens
from lenses.cells import cells as every_cell
from lenses.errors import BadOption, UnsupportedModel
from lenses.mapping import answered, mapping, stages
from lenses.progress import finish
from lenses.question import ask, proved_everywhere
from tests import tiny
from tests.contract import parsed


def mapped(family: str, lens: str = "ig-lens", text: str = tiny.PROMPT, **options):
    decoder = tiny.decoder(family)
    prompt = tokens.encode(decoder.tokenizer, text)
    return finish(mapping(decoder, prompt, tiny.lens(family, lens), **options))


@pytest.mark.parametrize("lens", registry.LENSES)
@pytest.mark.parametrize("family", ["gpt2", "mamba"])
def test_each_column_is_what_the_lens_says_of_that_position(family, lens):
    found = mapped(family, lens)
    for column, token in zip(found.columns, [*tiny.IDS[1:], None], strict=True):
        alone = lenses.compare(
            tiny.decoder(family), tiny.PROMPT, target=token, position=column.position,
            lenses=[tiny.lens(family, lens)],
        )  # fmt: skip
        (result,) = alone.results
        assert column.target.id == alone.target.token
        assert column.target.probability == pytest.approx(alone.probability, abs=1e-6)
        assert column.attribution.values == pytest.approx(result.attribution.values, abs=2e-6)


@pytest.mark.parametrize("family", tiny.SOME)
def test_the_shares_of_every_column_sum_to_the_models_own_probability(family):
    found = mapped(family, answer=3)
    for column in found.columns:
        a = column.attribution
        # Float32 logits of the readout and of the model differ in their last bits.
        assert a.start + a.values.sum() == pytest.approx(column.target.probability, abs=1e-6)


@pytest.mark.parametrize("family", tiny.SOME)
def test_the_answer_is_the_models_most_likely_tokens_one_by_one(family):
    decoder = tiny.decoder(family)
    found = mapped(family, answer=4)
    ids = list(found.prompt.ids)
    assert found.answer_from == len(tiny.IDS)
    assert ids[: len(tiny.IDS)] == tiny.IDS
    for end in range(len(tiny.IDS), len(ids)):
        assert ids[end] == int(decoder.own(ids[:end])[-1].argmax())
    assert [column.target.id for column in found.columns] == ids[1:]


def test_an_answer_ends_with_the_end_of_text():
    decoder = tiny.decoder("gpt2")
    prompt = tokens.encode(decoder.tokenizer, tiny.PROMPT)
    whole = finish(answered(decoder, prompt, 6)).ids
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = f"w{whole[7]}"
    ending = lenses.Decoder(decoder.model, tokenizer)
    assert finish(answered(ending, prompt, 6)).ids == whole[: whole.index(whole[7], 6) + 1]


def test_an_answer_of_less_than_no_tokens_is_refused():
    with pytest.raises(BadOption, match="at least 0"):
        mapped("gpt2", answer=-1)


@pytest.mark.parametrize("answer", [0, 2])
def test_the_json_is_that_of_the_contract(answer):
    found = mapped("gpt2", answer=answer, top=5)
    data = parsed(json.dumps(found.to_dict(), allow_nan=False))
    columns, depths = len(tiny.IDS) + max(0, answer - 1), tiny.decoder("gpt2").blocks
    assert data["schema"] == "lenses.map/1"
    assert data["answer_from"] == (len(tiny.IDS) if answer else None)
    assert (data["lens"], data["unit"], data["depths"]) == ("ig-lens", "probability", [1, 2, 3])
    assert [column["position"] for column in data["columns"]] == list(range(columns))
    assert {len(row) for row in data["values"]} == {len(data["start"])} == {columns}
    assert len(data["values"]) == len(data["top"]) == depths
    assert {len(cell) for row in data["top"] for cell in row} == {5}
    assert "top" not in mapped("gpt2").to_dict()


@pytest.mark.parametrize("family", tiny.SOME)
def test_a_surface_ends_with_what_the_model_itself_finds_likeliest(family):
    decoder = tiny.decoder(family)
    question = ask(decoder, tiny.PROMPT, target="w5")
    seen = surface.look(decoder, question.trace, question.target, top=5)
    own = question.reading.probabilities
    assert [r.id for r in seen.top[-1]] == own.argsort()[::-1][:5].tolist()
    assert seen.levels[-1] == pytest.approx(question.probability, abs=1e-6)
    lens = registry.get("logit-lens").attribute(decoder, question.trace, question.target)
    assert seen.levels == pytest.approx(lens.values, abs=1e-12)
    again = surface.read(json.loads(json.dumps(seen.to_dict())))
    assert again.to_dict() == seen.to_dict()


def test_a_cell_says_the_rank_and_the_entropy_beside_the_likeliest_tokens():
    found = mapped("llama", top=5)
    frame = every_cell(found)
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    for _, row in frame.iterrows():
        chances = decoder.readout(trace[row["depth"]][[row["position"]]])[0].double().softmax(-1)
        target = found.columns[row["position"]].target.id
        assert row["rank"] == 1 + int((chances > chances[target]).sum())
        assert row["entropy"] == pytest.approx(float(-(chances * chances.log2()).sum()), abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_map_on_a_gpu_is_that_of_the_cpu():
    config = tiny.FAMILIES["llama"]()
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config)).cuda()
    decoder = lenses.Decoder(model, tiny.tokenizer())
    found = finish(mapping(decoder, tokens.encode(decoder.tokenizer, tiny.PROMPT), registry.get("ig-lens")))
    assert found.values == pytest.approx(mapped("llama").values, abs=1e-4)


@pytest.mark.parametrize("family", tiny.SOME)
def test_a_trace_that_was_changed_in_place_is_read_again(family):
    decoder = tiny.decoder(family)
    question = ask(decoder, tiny.PROMPT, target="w5")
    before = readout.depths(decoder, question.trace, 5, 5).probability
    assert readout.depths(decoder, question.trace, 5, 5).probability is before
    question.trace.residual[1] = question.trace.residual[2]
    after = readout.depths(decoder, question.trace, 5, 5).probability
    assert after[1] == after[2] == before[2] != before[1]


@pytest.mark.parametrize("family", tiny.SOME)
def test_what_was_read_once_is_what_is_read_alone(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    for position in (0, 3, 5):
        for token in (5, 9):
            alone = readout.level(decoder, trace.residual[:, position], token)
            first = readout.depths(decoder, trace, position, token)
            assert first.probability == pytest.approx(alone, abs=1e-6)
            assert readout.depths(decoder, trace, position, token) is first


@pytest.mark.parametrize("family", tiny.SOME)
def test_depths_that_are_read_in_stages_are_those_read_at_once(family):
    decoder = tiny.decoder(family)
    one, other = decoder.trace(tiny.IDS), decoder.trace(tiny.IDS)
    last = decoder.blocks
    wanted = [(one, position, 5) for position in (1, 4)]
    readout.remember(decoder, wanted, [0, last], detail=False)
    for position in (1, 4):
        ends = readout.levels(decoder, one, position, 5, [0, last])
        whole = readout.depths(decoder, other, position, 5)
        assert ends == pytest.approx(whole.probability[[0, last]], abs=1e-6)
    readout.remember(decoder, wanted, range(1, last), detail=False)
    for position in (1, 4):
        staged = readout.depths(decoder, one, position, 5)
        whole = readout.depths(decoder, other, position, 5)
        assert staged.probability == pytest.approx(whole.probability, abs=1e-6)
        assert len(staged.rank) == 0
        detailed = readout.depths(decoder, one, position, 5, detail=True)
        assert (detailed.top == whole.top).all()


@pytest.mark.parametrize("count", [1, 2, 5, 7, 13, 31, 33, 81])
@pytest.mark.parametrize("many", [True, False])
def test_the_stages_of_a_map_read_each_depth_once_and_the_ends_first(count, many):
    order = stages(range(count), many)
    read = [depth for stage in order for depth in stage]
    assert sorted(read) == list(range(count))
    assert {0, count - 1} <= set(order[0])
    if not many:
        assert len(order) == 1
    elif count >= 31:
        assert len(order[0]) <= 0.11 * count + 1


@pytest.mark.parametrize("lens", ["ig-lens", "logit-lens"])
def test_the_previews_of_a_long_map_are_its_own_values_at_fewer_depths(lens, monkeypatch):
    monkeypatch.setattr(readout, "BUDGET", 1024)  # the text is long for so little memory
    config = tiny.FAMILIES["llama"]()
    config.num_hidden_layers = 12
    decoder = lenses.Decoder(tiny.seeded(hf.AutoModelForCausalLM.from_config(config)), tiny.tokenizer())
    prompt = tokens.encode(decoder.tokenizer, tiny.PROMPT)
    steps, work = [], mapping(decoder, prompt, registry.get(lens))
    try:
        while True:
            steps.append(next(work))
    except StopIteration as end:
        whole = end.value
    previews = {id(step.preview): step.preview for step in steps if step.preview is not None}
    assert len(previews) >= 2
    assert all(a.done <= b.done for a, b in itertools.pairwise(steps) if a.text == b.text)
    for preview in previews.values():
        assert preview.depths[-1] == decoder.blocks
        for coarse, fine in zip(preview.columns, whole.columns, strict=True):
            a, b = coarse.attribution, fine.attribution
            assert (coarse.target, a.start) == (fine.target, b.start)
            if lens == "logit-lens":
                assert (a.values == b.values[a.depths]).all()
            else:
                running = dict(zip(b.depths.tolist(), b.values.cumsum(), strict=True))
                assert a.values.cumsum() == pytest.approx([running[d] for d in a.depths], abs=1e-12)


@pytest.mark.parametrize("vocabulary", [3, 64, 256, 2560, 2817, 5000, 49152])
@pytest.mark.parametrize("top", [0, 1, 5])
def test_the_likeliest_tokens_are_those_of_a_full_sort(vocabulary, top):
    logits = torch.randn(40, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    top = min(top, vocabulary)
    values, ids = readout.likeliest(logits, top)
    best = logits.sort(dim=-1, descending=True)
    assert torch.equal(values, best.values[:, :top])
    assert torch.equal(ids, best.indices[:, :top])


@pytest.mark.parametrize("family", tiny.SOME)
def test_rank_and_entropy_are_those_of_the_whole_distribution(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    rows = trace.residual.flatten(0, 1)
    wanted = torch.arange(len(rows)) % decoder.vocabulary
    found = readout.read(decoder, rows, wanted, detail=True)
    chances = decoder.readout(rows).double().softmax(-1)
    own = chances.gather(1, wanted[:, None])
    assert found.rank.tolist() == (1 + (chances > own).sum(-1)).tolist()
    entropy = -(chances * chances.clamp_min(1e-300).log()).sum(-1)
    assert found.entropy == pytest.approx(entropy.numpy(), abs=1e-5)
    assert len(readout.read(decoder, rows, wanted).rank) == 0


def test_logits_of_minus_infinity_leave_every_reading_a_number(monkeypatch):
    decoder = tiny.decoder("llama")
    rows = decoder.trace(tiny.IDS)[-1]
    plain = readout.read(decoder, rows, 5, detail=True, top=3)
    real = decoder.readout

    def masked(given, out=None):
        logits = real(given).clone()
        logits[:, 7:9] = -torch.inf
        return logits

    monkeypatch.setattr(decoder, "readout", masked)
    found = readout.read(decoder, rows, 5, detail=True, top=3)
    assert np.isfinite(found.entropy).all()
    assert (found.probability > plain.probability).all()


@pytest.mark.parametrize("family", [*tiny.SOME, "gemma2", "granite"])
def test_the_faster_kernel_reads_what_the_models_own_head_reads(family):
    decoder = tiny.decoder(family)
    rows = decoder.trace(tiny.IDS).residual.flatten(0, 1)
    own = readout.read(decoder, rows, 5, top=3)
    fast = readout.read(decoder, rows, 5, top=3, fast=True)
    assert fast.probability == pytest.approx(own.probability, abs=1e-6)
    if family in ("gemma2", "granite"):
        assert not decoder.fast_head  # a softcap or a scale comes after the head


@pytest.mark.parametrize("family", tiny.SOME)
def test_a_map_is_proved_at_every_position(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    own, gap = proved_everywhere(decoder, trace, 3)
    expected = decoder.own(tiny.IDS)[3].double().softmax(-1).numpy()
    assert own == pytest.approx(expected, abs=1e-6)
    assert gap <= 1e-6
    trace.residual[-1, 2] *= -1.5  # no longer the model's own
    with pytest.raises(UnsupportedModel, match="away from the model's own"):
        proved_everywhere(decoder, trace, 3)


def test_another_decoder_reads_the_same_trace_for_itself():
    one, other = tiny.decoder("llama"), tiny.decoder("mixtral")
    trace = one.trace(tiny.IDS)
    assert (
        readout.depths(one, trace, 5, 5).probability[1] != readout.depths(other, trace, 5, 5).probability[1]
    )
