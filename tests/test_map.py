"""A map is one question a token: its columns are what the lens says of each."""

from __future__ import annotations

import json

import pytest

import lenses
from lenses import readout, registry, surface, tokens
from lenses.errors import BadOption
from lenses.mapping import answered, mapping
from lenses.progress import finish
from lenses.question import ask
from tests import tiny
from tests.contract import parsed


def mapped(family: str, lens: str = "ig-lens", text: str = tiny.PROMPT, **options):
    decoder = tiny.decoder(family)
    prompt = tokens.encode(decoder.tokenizer, text)
    return finish(mapping(decoder, prompt, registry.get(lens), **options))


@pytest.mark.parametrize("lens", registry.LENSES)
@pytest.mark.parametrize("family", ["gpt2", "mamba"])
def test_each_column_is_what_the_lens_says_of_that_position(family, lens):
    found = mapped(family, lens)
    for column, token in zip(found.columns, [*tiny.IDS[1:], None], strict=True):
        alone = lenses.compare(
            tiny.decoder(family), tiny.PROMPT, target=token, position=column.position, lenses=[lens]
        )
        (result,) = alone.results
        assert column.target.id == alone.target.token
        assert column.target.probability == pytest.approx(alone.probability, abs=1e-6)
        assert column.attribution.values == pytest.approx(result.attribution.values, abs=1e-12)


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
            for _ in range(2):
                assert (readout.depths(decoder, trace, position, token).probability == alone).all()


def test_another_decoder_reads_the_same_trace_for_itself():
    one, other = tiny.decoder("llama"), tiny.decoder("mixtral")
    trace = one.trace(tiny.IDS)
    assert (
        readout.depths(one, trace, 5, 5).probability[1] != readout.depths(other, trace, 5, 5).probability[1]
    )
