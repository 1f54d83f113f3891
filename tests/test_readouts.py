"""Every readout keeps a ledger that closes, and reads what a twin reads of the model's own logits."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import lenses
from lenses import padded, question, registry, together, tokens, words
from lenses.attribution import Verdict, check
from lenses.readouts import MEANINGS, UNITS
from lenses.target import Target
from tests import naive, tiny
from tests.contract import COMPARISON, faults

FAMILIES = ("gpt2", "llama", "gemma2", "bloom", "mamba")
READOUTS = [name for name in UNITS if name not in ("rank", "tuned")]
OTHER = "w7"
WORD = (5, 9, 22)
"""A target of three tokens."""


def ask(family: str, target: str):
    return question.ask(tiny.decoder(family), tiny.PROMPT, target=target)


def log_chances(model, ids, states, position, token):
    """The obvious twin: natural log-probability and logit at every depth, one whole run a depth."""
    found = []
    for state in states:
        logits = naive.resumed(model, ids, len(states) - 1, state).double()[position]
        found.append((float(logits.log_softmax(-1)[token]), float(logits[token])))
    return np.array(found).T


@functools.cache
def read(family: str, word: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A word's natural log-probability and logit at every depth: the sums of those of its tokens."""
    model, ids = tiny.model(family), [*tiny.IDS, *word[:-1]]
    with torch.no_grad():
        states = naive.states(model, ids)
        pairs = [log_chances(model, ids, states, len(tiny.IDS) - 1 + k, t) for k, t in enumerate(word)]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def twin(family: str, readout: str, word: tuple[int, ...]) -> np.ndarray:
    """What a readout should be at depths 0…L, with the definitions written out."""
    model = tiny.model(family)

    def whole():
        with torch.no_grad():
            states = naive.states(model, tiny.IDS)
            rows = [naive.resumed(model, tiny.IDS, len(states) - 1, s).double()[-1] for s in states]
        return torch.stack(rows).log_softmax(-1).numpy()

    if readout == "entropy":
        return np.array([-(np.exp(row) * row).sum() for row in whole()]) / np.log(2)
    if readout == "kl":
        final = whole()[-1]
        return np.array([(np.exp(final) * (final - row)).sum() for row in whole()]) / np.log(2)
    log, logit = read(family, word)
    other = read(family, (7,))[0]
    return {
        "probability": lambda: np.exp(log),
        "log-probability": lambda: log,
        "bits": lambda: log / np.log(2),
        "logit": lambda: logit,
        "difference": lambda: np.exp(log) - np.exp(other),
        "log-odds": lambda: log - other,
        "variants": lambda: np.exp(log),  # a word-level vocabulary knows one spelling of w5
    }[readout]()


@pytest.mark.parametrize("word", [WORD[:1], WORD], ids=["one", "three"])
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_readout_is_its_definition_and_its_ledger_closes(family, readout, word):
    decoder = tiny.decoder(family)
    asked = ask(family, " ".join(f"w{id}" for id in word))
    options = {"readout": readout, "against": OTHER}
    levels = registry.get("logit-lens", **options).attribute(decoder, asked.trace, asked.target)
    expected = twin(family, readout, word)
    # Logits of float32 models: their rounding, as a part of values that are up to 20.
    np.testing.assert_allclose(levels.values, expected, rtol=1e-5, atol=1e-6)
    shares = registry.get("ig-lens", **options).attribute(decoder, asked.trace, asked.target)
    np.testing.assert_allclose(shares.values, np.diff(levels.values), atol=1e-12)
    assert shares.unit is levels.unit is UNITS[readout]
    assert check(shares).verdict is Verdict.EXACT
    assert (shares.pieces is not None) == (
        len(word) > 1 and readout in ("probability", "log-probability", "bits", "logit")
    )


@pytest.mark.parametrize("baseline", ["mean", "zero"])
@pytest.mark.parametrize("readout", READOUTS)
def test_a_ledger_in_any_readout_closes_from_any_baseline(readout, baseline):
    asked = ask("gpt2", "w5 w9")
    lens = registry.get("ig-lens", readout=readout, against="w7 w3", baseline=baseline)
    found = lens.attribute(tiny.decoder("gpt2"), asked.trace, asked.target)
    assert check(found).verdict is Verdict.EXACT
    plain = registry.get("ig-lens", readout=readout, against="w7 w3").attribute(
        tiny.decoder("gpt2"), asked.trace, asked.target
    )
    np.testing.assert_array_equal(found.values[1:], plain.values[1:])
    assert found.start != plain.start
    assert found.end == plain.end


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("word", ["w5", "w5 w9 w22"])
def test_the_gradient_of_every_readout_integrates_to_what_is_observed(readout, word):
    asked, decoder = ask("llama", word), tiny.decoder("llama")
    options = {"readout": readout, "against": "w7 w11"}
    observed = registry.get("ig-lens", **options).attribute(decoder, asked.trace, asked.target)
    gradual = registry.get("ig-lens", estimator="gradient", steps=200, **options).attribute(
        decoder, asked.trace, asked.target
    )
    # 200 Gauss–Legendre points in float32, against differences of values that are up to 20.
    np.testing.assert_allclose(gradual.values, observed.values, rtol=2e-3, atol=2e-4)
    assert check(gradual).verdict in (Verdict.CONVERGED, Verdict.NOT_CONVERGED)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pieces_of_a_word_have_a_ledger_each_and_their_logarithms_sum(family):
    decoder, asked = tiny.decoder(family), ask(family, "w5 w9 w22")
    log = registry.get("ig-lens", readout="log-probability").attribute(decoder, asked.trace, asked.target)
    np.testing.assert_allclose(log.pieces.sum(axis=1), log.values, atol=1e-12)
    chance = registry.get("logit-lens").attribute(decoder, asked.trace, asked.target)
    np.testing.assert_allclose(chance.pieces.prod(axis=1), chance.values, rtol=1e-12)
    assert chance.values[-1] == pytest.approx(asked.probability, abs=1e-6)
    shares = registry.get("ig-lens").attribute(decoder, asked.trace, asked.target)
    np.testing.assert_allclose(shares.pieces, np.diff(chance.pieces, axis=0), atol=1e-12)
    # Each piece by itself is the one-token target after the text that goes before it.
    for k, token in enumerate(WORD):
        before = tiny.PROMPT + "".join(f" w{id}" for id in WORD[:k])
        alone = question.ask(decoder, before, target=f"w{token}")
        assert asked.pieces[k].probability == pytest.approx(alone.probability, abs=1e-6)


def test_the_rank_is_a_level_and_a_words_is_the_worst_of_its_tokens():
    decoder, asked = tiny.decoder("llama"), ask("llama", "w5")
    found = registry.get("logit-lens", readout="rank").attribute(decoder, asked.trace, asked.target)
    rows = decoder.readout(asked.trace.residual[:, -1]).double()
    assert found.values.tolist() == (1 + (rows > rows[:, 5:6]).sum(dim=-1)).tolist()
    several = ask("llama", "w5 w9")
    word = registry.get("logit-lens", readout="rank").attribute(decoder, several.trace, several.target)
    np.testing.assert_array_equal(word.pieces[:, 0], found.values)
    np.testing.assert_array_equal(word.values, word.pieces.max(axis=1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readout": "difference"}, "needs another word to measure against"),
        ({"readout": "log-odds", "against": "nothing"}, "'nothing' is not in this model's vocabulary"),
    ],
)
def test_another_word_that_is_missing_is_asked_for(options, said):
    asked = ask("llama", "w5")
    with pytest.raises(lenses.LensesError, match=said):
        registry.get("ig-lens", **options).attribute(tiny.decoder("llama"), asked.trace, asked.target)


def test_a_token_that_the_head_rules_out_has_a_probability_and_no_logarithm():
    model = tiny.model("phi")
    with torch.no_grad():
        model.lm_head.bias[5] = -torch.inf
    decoder = lenses.Decoder(model, tiny.tokenizer(), "phi")
    asked = question.ask(decoder, tiny.PROMPT, target="w5")
    assert registry.get("ig-lens").attribute(decoder, asked.trace, asked.target).end == 0
    with pytest.raises(lenses.NonFinite, match="the head rules a token out"):
        registry.get("ig-lens", readout="bits").attribute(decoder, asked.trace, asked.target)


@pytest.mark.real
def test_the_spellings_of_a_word_are_read_together(smol):
    asked = question.ask(smol, "The capital of France is", target=" Paris")
    texts = words.spelled(smol, asked.trace, asked.target)
    assert texts == (" Paris", "Paris", "paris", " paris")
    found = registry.get("logit-lens", readout="variants").attribute(smol, asked.trace, asked.target)
    each = [question.ask(smol, "The capital of France is", target=text).probability for text in texts]
    assert each[1] == pytest.approx(0.000515, abs=1e-6)  # cases.md
    assert found.values[-1] == pytest.approx(sum(each), abs=1e-6)


@pytest.mark.real
def test_paris_against_london_falls_to_one_number_in_every_lens(smol):
    asked = question.ask(smol, "The capital of France is", target=" Paris")
    odds = registry.get("ig-lens", readout="log-odds", against=" London").attribute(
        smol, asked.trace, asked.target
    )
    other = question.ask(smol, "The capital of France is", target=" London").probability
    assert odds.end == pytest.approx(np.log(asked.probability / other), abs=1e-4)
    assert check(odds).verdict is Verdict.EXACT


WORDS = [None, "w5", "w5 w9", "w3 w7 w11 w12", "nothing", "w9"]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_of_any_length_are_read_together_as_alone(family):
    decoder = tiny.decoder(family)
    texts = [tiny.PROMPT, "w3 w17", "w9", "w22 w8 w3", "w4", "w3"]
    prompts = [tokens.encode(decoder.tokenizer, text) for text in texts]
    try:
        found = together.ask(decoder, prompts, WORDS)
    except padded.PaddingMatters:
        pytest.skip(f"{family} takes prompts of one length only")
    for text, word, one in zip(texts, WORDS, found, strict=True):
        if word == "nothing":
            assert isinstance(one, lenses.LensesError)
            continue
        alone = question.ask(decoder, text, target=word)
        assert one.target == alone.target
        # A batch sums in another order than a prompt alone: float32.
        assert one.probability == pytest.approx(alone.probability, abs=1e-5)
        for lens in ("ig-lens", "logit-lens"):
            batched, single = (registry.get(lens).attribute(decoder, q.trace, q.target) for q in (one, alone))
            np.testing.assert_allclose(batched.values, single.values, atol=1e-5)
            if single.pieces is not None:
                np.testing.assert_allclose(batched.pieces, single.pieces, atol=1e-5)


def test_a_word_inside_a_prompt_takes_the_place_of_what_follows():
    decoder = tiny.decoder("llama")
    inside = question.ask(decoder, tiny.PROMPT, target="w5 w9", position=2)
    alone = question.ask(decoder, " ".join(tiny.PROMPT.split()[:3]), target="w5 w9")
    assert inside.target == alone.target == Target(2, 5, (9,))
    assert inside.probability == pytest.approx(alone.probability, abs=1e-6)


def test_a_word_that_the_prompt_goes_on_with_is_read_as_any_other():
    decoder = tiny.decoder("llama")
    inside = question.ask(decoder, "w3 w17 w5 w9 w22", target="w5 w9", position=1)
    alone = question.ask(decoder, "w3 w17", target="w5 w9")
    assert [piece.probability for piece in inside.pieces] == pytest.approx(
        [piece.probability for piece in alone.pieces], abs=1e-6
    )


def test_a_comparison_of_a_word_comes_back_from_json_with_its_pieces():
    found = lenses.compare(tiny.decoder("llama"), tiny.PROMPT, target="w5 w9", lenses=["ig-lens"])
    data = found.to_dict()
    assert [piece["id"] for piece in data["target"]["pieces"]] == [5, 9]
    assert faults(data, COMPARISON) == []
    again = lenses.outcome.read(data)
    assert again.to_dict() == data
    np.testing.assert_array_equal(again.results[0].attribution.pieces, found.results[0].attribution.pieces)


def test_every_readout_has_a_unit_and_a_meaning():
    assert set(UNITS) == set(MEANINGS)
