"""Which token is scored, and what is said where it is not quite what was typed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lenses
from lenses import question as asked
from lenses import readout, tokens
from lenses import target as targets
from tests import tiny
from tests.test_tokens import TEMPLATE, sentencepiece

FRANCE = "The capital of France is"
VIETNAM = "The capital of Vietnam is"
ONE_LENS = {"lenses": ["logit-lens"]}


def ask(decoder, prompt, target=None, **options):
    return asked.ask(decoder, prompt, target=target, **options)


SCORED = [
    (FRANCE, " Paris", 7042, 0.772532, []),
    (FRANCE, "Paris", 38634, 0.000515, ["with a space before it, ' Paris' has 77.25%: give ' Paris'"]),
    (VIETNAM, " Hanoi", 407, 0.183587, []),
    (VIETNAM, " Ho Chi Minh City", 15795, 0.023725, []),
    (FRANCE + "\u00a0", "Paris", 38634, 0.666464, ["U+00A0"]),
    (FRANCE + "\u00a0", " Paris", 7042, 0.004526, ["U+00A0", "without the space", "give 'Paris'"]),
]


@pytest.mark.parametrize(("prompt", "target", "id", "probability", "said"), SCORED)
def test_the_scored_token_has_the_models_probability_and_is_named(
    smol, prompt, target, id, probability, said
):
    question = ask(smol, prompt, target)
    assert question.target.token == id
    # The float64 model's values, to six digits; thirty blocks in float32 end a few millionths beside them.
    assert question.probability == pytest.approx(probability, rel=1e-5, abs=1e-6)
    warned = "\n".join(question.warnings)
    assert all(words in warned for words in said)
    assert bool(warned) == bool(said)


WORDS = [
    # cases.md has the first two, whose third digits from the end are those of a fast exponential.
    (VIETNAM, " Hanoi", [" H", "ano", "i"], [0.188822, 0.995199, 0.977001], 0.183593),
    (
        VIETNAM, " Ho Chi Minh City", [" Ho", " Chi", " Minh", " City"],
        [0.129233, 0.233187, 0.962078, 0.818325], 0.023725,
    ),
    ("2 + 2 =", " 4", [" ", "4"], [0.863298, 0.114145], 0.098541),
    (FRANCE, " paris", [" par", "is"], [0.000679, 0.99], 0.000673),
]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(("prompt", "target", "texts", "chances", "joint"), WORDS)
def test_the_first_piece_of_a_word_is_never_taken_for_the_word(smol, prompt, target, texts, chances, joint):
    question = ask(smol, prompt, target)
    assert question.target_text == target
    assert [piece.text for piece in question.pieces] == texts
    # The values are of a softmax that is off by 1e-5; of the last case's second piece two digits are known.
    assert [piece.probability for piece in question.pieces] == pytest.approx(chances, rel=2e-2, abs=2e-5)
    assert question.probability == pytest.approx(joint, rel=2e-4, abs=1e-6)
    assert question.probability == pytest.approx(np.prod([p.probability for p in question.pieces]))


def test_the_default_target_is_the_likeliest_token(smol):
    question = ask(smol, FRANCE)
    assert question.target.token == int(question.reading.probabilities.argmax()) == 7042


@pytest.mark.parametrize("target", ["w5", " w5", 5])
def test_bos_is_no_part_of_a_target(target):
    decoder = lenses.Decoder(tiny.model("llama"), tiny.tokenizer(bos=True), "llama-bos")
    assert ask(decoder, tiny.PROMPT, target).target.token == 5


MERGING = [
    (tiny.tokenizer, "w3", "w5", [5]),
    (sentencepiece, "hel", "lo", "lo"),
    (sentencepiece, "is", "hello", "hello"),
    (sentencepiece, "is", " is", "▁is"),
]


@pytest.mark.parametrize(("build", "before", "target", "expected"), MERGING)
def test_a_target_is_scored_as_typed_also_where_it_would_merge(build, before, target, expected):
    tokenizer = build()
    ids, warnings = targets.pieces(tokenizer, before, target)
    assert ids == expected or tokenizer.convert_ids_to_tokens(ids) == [expected]
    joint = tokens.plain_ids(tokenizer, before + target)
    merges = joint != tokens.plain_ids(tokenizer, before) + ids
    assert ["would merge with the token before it" in warning for warning in warnings] == [True] * merges


def test_a_target_inside_the_prompt_follows_what_stands_before_it():
    tokenizer = sentencepiece()
    prompt = tokens.encode(tokenizer, "hello is a")
    even = np.full(len(tokenizer), 1 / len(tokenizer))
    found, warnings = targets.choose(tokenizer, prompt, 1, even, " a")
    assert (tokenizer.convert_ids_to_tokens(found.token), warnings) == ("▁a", [])


def test_a_target_of_a_chat_follows_the_template_and_not_the_message():
    tokenizer = sentencepiece()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %} is"
    prompt = tokens.encode(tokenizer, "hel", chat=True)
    even = np.full(len(tokenizer), 1 / len(tokenizer))
    found, warnings = targets.choose(tokenizer, prompt, len(prompt.tokens) - 1, even, "lo")
    assert (tokenizer.convert_ids_to_tokens(found.token), warnings) == ("lo", [])


def test_a_chat_is_read_as_its_ids():
    tokenizer = tiny.tokenizer(bos=True)
    tokenizer.chat_template = TEMPLATE
    decoder = lenses.Decoder(tiny.model("llama"), tokenizer, "llama-chat")
    question = ask(decoder, "w3 w17", "w5", chat=True)
    plain = readout.level(decoder, decoder.trace([1, 3, 17, 9])[-1][-1:], 5)[0]
    # The same probability from one row and from the whole sequence: two float32 sums.
    assert question.probability == pytest.approx(plain, abs=1e-6)


REFUSED = [
    (tiny.PROMPT, "w63", None, "'w63' is not in this model's vocabulary"),
    (tiny.PROMPT, " w63", None, "' w63' is not in this model's vocabulary"),
    (tiny.PROMPT, "w5 nothing", None, "is not in this model's vocabulary"),
    (tiny.PROMPT, "", None, "the target '' is empty"),
    (tiny.PROMPT, " ", None, "the target ' ' is empty"),
    (tiny.PROMPT, "\udce9", None, "give UTF-8"),
    (tiny.PROMPT, 64, None, "target id 64 is outside this vocabulary of 64 tokens"),
    (tiny.PROMPT, -1, None, "target id -1 is outside"),
    (tiny.PROMPT, "w5", 6, "position 6 is outside the prompt, which has tokens 0…5"),
    (tiny.PROMPT, "w5", -7, "position -7 is outside"),
]


@pytest.mark.parametrize(("prompt", "target", "position", "said"), REFUSED)
def test_what_cannot_be_a_target_is_refused_with_the_reason(prompt, target, position, said):
    decoder = lenses.Decoder(tiny.model("llama"), tiny.tokenizer(size=60), "llama-smalltok")
    with pytest.raises(lenses.BadPrompt, match=said.replace("(", r"\(")):
        ask(decoder, prompt, target, position=position)


@pytest.mark.parametrize("position", range(-6, 6))
def test_a_position_counts_from_either_end_and_its_future_does_not_matter(position):
    decoder = tiny.decoder("llama")
    found = ask(decoder, tiny.PROMPT, "w5", position=position)
    assert found.target.position == position % 6
    cut = " ".join(tiny.PROMPT.split()[: position % 6 + 1])
    # Matrix products of other shapes sum in another order.
    assert found.probability == pytest.approx(ask(decoder, cut, "w5").probability, abs=1e-6)


def test_a_row_without_a_name_is_a_target_like_any_other():
    decoder = lenses.Decoder(tiny.model("llama"), tiny.tokenizer(size=60), "llama-smalltok")
    found = lenses.compare(decoder, tiny.PROMPT, target=62, **ONE_LENS).to_dict()
    assert (found["target"]["id"], found["target"]["text"]) == (62, "[id 62]")


def test_a_tokenizer_larger_than_the_embedding_is_named():
    decoder = lenses.Decoder(tiny.model("llama"), tiny.tokenizer(size=70), "llama-bigtok")
    with pytest.raises(lenses.BadPrompt, match="token id 66 is outside the embedding, which has 64 rows"):
        ask(decoder, "w3 w66", "w5")
    with pytest.raises(lenses.BadPrompt, match="'w66' is outside this vocabulary of 64 tokens"):
        ask(decoder, "w3", "w66")


LEARNED = ("gpt2", "gpt_neo", "gptj", "codegen", "opt", "opt_350m", "biogpt", "gpt_bigcode", "openai-gpt")
ENDLESS = ("llama", "mistral", "gemma2", "mixtral", "phi")


@pytest.mark.parametrize("family", LEARNED)
def test_a_prompt_longer_than_the_position_table_is_refused_with_both_lengths(family):
    decoder = tiny.decoder(family)
    assert ask(decoder, "w3 " * 31 + "w3", "w5").warnings[0].startswith("typed after the prompt")
    with pytest.raises(lenses.BadPrompt, match="has 33 tokens and the model has places for 32"):
        ask(decoder, "w3 " * 32 + "w3", "w5")


@pytest.mark.parametrize("family", ENDLESS)
def test_a_prompt_longer_than_a_rotary_model_was_made_for_is_warned_of(family):
    found = lenses.compare(tiny.decoder(family), "w3 " * 63 + "w3", target=5, **ONE_LENS)
    assert any("has 64 tokens, more than the 32" in warning for warning in found.warnings)


def test_an_empty_prompt_is_explained_from_bos_alone():
    decoder = lenses.Decoder(tiny.model("llama"), tiny.tokenizer(), "llama")
    found = ask(decoder, "", "w5")
    own = decoder.model(torch.tensor([[1]])).logits[0, -1].double().softmax(-1)[5]
    assert found.probability == pytest.approx(float(own), abs=1e-6)
