"""Lists of prompts: the same numbers as one by one, in bounded pieces, and a bad row fails alone."""

from __future__ import annotations

import dataclasses
import gc
import logging
import weakref

import numpy as np
import pytest
import torch
import transformers as hf

import lenses
from lenses import batch, padded, question, registry, together, tokens
from lenses.decoder import Decoder
from lenses.errors import BadOption, BadPrompt, NonFinite
from lenses.findings import Outcome
from lenses.layout import Positions
from lenses.progress import Progress
from lenses.prompts import Row
from tests import tiny

WORDS = [
    "w3 w17 w9 w41 w22 w8", "w5", "w9 w9", "w3 w17 w9 w41 w22 w8 w11 w12 w13", "w30 w31 w32 w33", "w7 w8 w9"
]  # fmt: skip
CLOSE = 1e-5  # of probability: what a batch may change by rounding


def rows(prompts: list[str], **more) -> list[Row]:
    return [Row(k, k + 1, prompt, **more) for k, prompt in enumerate(prompts, start=1)]


def outcomes(decoder: Decoder, asked: list[Row], *args, **options) -> dict[int, Outcome]:
    found = list(batch.run(decoder, asked, *args, **options))
    assert sorted(one.row.row for one in found) == [row.row for row in asked]  # each row once
    return {one.row.row: one for one in found}


@pytest.mark.parametrize("size", [2, 6])
@pytest.mark.parametrize("family", [*tiny.SOME, "xglm", "opt", "openai-gpt", "falcon_h1", "qwen3_next"])
def test_a_row_has_the_numbers_that_its_prompt_has_alone(family, size):
    decoder = tiny.decoder(family)
    for number, one in outcomes(decoder, rows(WORDS), batch_size=size).items():
        alone = lenses.compare(decoder, WORDS[number - 1], lenses=registry.quick())
        assert one.comparison.target == alone.target
        assert one.comparison.probability == pytest.approx(alone.probability, abs=CLOSE)
        for mine, theirs in zip(one.comparison.results, alone.results, strict=True):
            assert mine.additivity.verdict == theirs.additivity.verdict
            np.testing.assert_allclose(mine.attribution.values, theirs.attribution.values, atol=1e-4)


def test_a_batch_is_padded_on_the_right_and_read_at_each_prompts_own_end(smol):
    """Reading at position −1 of a padded batch gives the first of these two a probability of 0."""
    asked = [
        Row(1, 2, "The capital of France is", " Paris"),
        Row(2, 3, "The Eiffel Tower is in the city of", " Paris"),
    ]
    found = outcomes(smol, asked)
    for number, row in enumerate(asked, start=1):
        alone = lenses.compare(smol, row.prompt, target=" Paris", lenses=["ig-lens"])
        assert found[number].comparison.probability == pytest.approx(alone.probability, abs=CLOSE)
    assert found[2].comparison.probability == pytest.approx(0.6562, abs=2e-4)


def test_the_targets_are_the_rows_own_or_the_likeliest():
    decoder = tiny.decoder("gpt2")
    found = outcomes(decoder, [Row(1, 2, tiny.PROMPT, "w5"), Row(2, 3, tiny.PROMPT)])
    assert found[1].comparison.target_text == "w5"
    assert found[2].comparison.target == lenses.compare(decoder, tiny.PROMPT, lenses=["dla"]).target


SLOW = [name for name in registry.LENSES if registry.get(name).slow]
BAD = {
    "an unknown word as target": (Row(1, 2, "w3", "nosuch"), "is not in this model's vocabulary"),
    "too many tokens": (Row(1, 2, " ".join(["w3"] * 33)), "leave out at least 1"),
    "a row that was read badly": (Row(1, 7, "x", problem="line 7 is cut"), "line 7 is cut"),
}


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_fails_alone_and_says_why(case, size):
    bad, reason = BAD[case]
    good = [Row(k, k + 1, prompt) for k, prompt in enumerate(WORDS, start=2)]
    found = outcomes(tiny.decoder("gpt2"), [bad, *good], batch_size=size)
    assert reason in found[1].failure
    assert found[1].comparison is None
    assert all(found[row.row].comparison is not None for row in good)


@pytest.mark.parametrize("size", [1, 4])
def test_a_prompt_whose_states_overflow_fails_alone_and_names_the_depth(size):
    model = tiny.model("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[50] = torch.inf
    broken = object.__new__(Decoder)
    broken.__dict__ = {**Decoder(tiny.model("llama"), tiny.tokenizer(), "llama").__dict__, "model": model}
    found = outcomes(broken, rows(["w3 w4", "w50", "w5 w6 w7"]), batch_size=size)
    assert "depth 0" in found[2].failure
    assert found[1].comparison is not None
    assert found[3].comparison is not None


def test_a_defect_in_one_row_is_logged_and_the_others_go_on(caplog):
    class Odd(type(registry.get("logit-lens"))):
        def attribute(self, decoder, trace, target):
            if trace.positions == 1:
                raise ZeroDivisionError("a defect")
            return super().attribute(decoder, trace, target)

    with caplog.at_level(logging.ERROR):
        found = outcomes(tiny.decoder("gpt2"), rows(WORDS), [Odd()])
    assert "defect of LensLedger" in found[2].failure
    assert "ZeroDivisionError" in caplog.text
    assert sum(one.comparison is not None for one in found.values()) == len(WORDS) - 1


@pytest.mark.parametrize(
    "error", [IndexError("table"), MemoryError("no memory"), ZeroDivisionError("defect")]
)
def test_whatever_goes_wrong_with_a_batch_stays_with_the_row_at_fault(error, monkeypatch):
    compared = question.compared

    def fails(decoder, places, own, read):
        if list(places) == [4]:  # the prompt of five tokens
            raise error
        return compared(decoder, places, own, read)

    monkeypatch.setattr(question, "compared", fails)
    found = outcomes(tiny.decoder("gpt2"), rows(["w3 w4 w5 w6 w7", *WORDS]), batch_size=8)
    assert [number for number, one in found.items() if one.comparison is None] == [1]
    assert found[1].passing


def test_a_prompt_that_is_longer_than_is_taken_fails_alone():
    steps = batch.running(tiny.decoder("gpt2"), rows(WORDS), [registry.get("dla")], longest=6)
    found = {one.row.row: one for step in steps if isinstance(step, tuple) for one in step}
    assert [number for number, one in found.items() if one.failure] == [4]
    assert "at most 6 are taken here: leave out 3" in found[4].failure


def test_a_method_is_asked_for_once():
    with pytest.raises(BadOption, match="ig-lens is asked for twice"):
        list(
            batch.run(
                tiny.decoder("gpt2"), rows(WORDS), ["ig-lens", registry.get("ig-lens", baseline="zero")]
            )
        )


def test_an_option_that_does_not_fit_the_model_ends_the_list_at_once():
    with pytest.raises(BadOption, match="outside 0…3"):
        list(batch.run(tiny.decoder("gpt2"), rows(WORDS), [registry.get("ig-lens", depths=(99,))]))


def test_a_lens_that_a_model_does_not_allow_is_left_out_with_a_warning():
    decoder = tiny.decoder("gpt2")

    class No(type(registry.get("logit-lens"))):
        name = "no"

        def attribute(self, *_):
            raise lenses.UnsupportedLens("not for this model")

    found = outcomes(decoder, rows(["w3 w4"]), ["ig-lens", No()])
    assert "no is left out: not for this model" in found[1].comparison.warnings


def test_a_pass_that_takes_too_much_memory_is_tried_again_in_halves(monkeypatch):
    asked, sizes = together.ask, []

    def ask(decoder, prompts, targets):
        sizes.append(len(prompts))
        if len(prompts) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return asked(decoder, prompts, targets)

    monkeypatch.setattr(together, "ask", ask)
    found = outcomes(tiny.decoder("gpt2"), rows(WORDS), batch_size=6)
    assert sizes == [6, 3, 2, 3, 2]  # of the halves of 3, what is left over is one row, which goes alone
    assert all(one.comparison is not None for one in found.values())


class Big:
    """Stands for states and logits that a pass holds while it fails."""


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("ask", torch.OutOfMemoryError),
        ("ask", MemoryError),
        ("ask", IndexError),
        ("ask", padded.PaddingMatters),
        ("prepare", torch.OutOfMemoryError),
    ],
)
def test_what_failed_is_out_of_memory_before_it_is_tried_again(step, error, monkeypatch, quiet):
    held, alive, read, logit_lens = [], [], question.read, type(registry.get("logit-lens"))

    def failing(*_):
        alive.append(sum(one() is not None for one in held))
        big = Big()
        held.append(weakref.ref(big))
        raise error

    def alone(*given):
        alive.append(sum(one() is not None for one in held))
        return read(*given)

    monkeypatch.setattr(question, "read", alone)
    monkeypatch.setattr(*((together, "ask") if step == "ask" else (logit_lens, "prepare")), failing)
    found = outcomes(tiny.decoder("gpt2"), rows(WORDS), ["logit-lens"], batch_size=6)
    assert all(one.comparison is not None for one in found.values())
    assert len(alive) > len(WORDS)  # several at once, and then each alone
    assert not any(alive)


def test_what_is_wrong_with_one_prompt_keeps_none_of_the_others_states(monkeypatch, quiet):
    traces, held = padded.traces, []

    def watched(*given):
        made = traces(*given)
        held.extend(map(weakref.ref, made))
        return made

    monkeypatch.setattr(padded, "traces", watched)
    asked = [Row(k, k + 1, text, "w5") for k, text in enumerate(WORDS, start=1)]
    decoder = tiny.decoder("gpt2")
    choose = question.choose

    def refuses(decoder, reading, target):
        if len(reading.prompt.tokens) == 1:
            raise BadPrompt("not this one")
        return choose(decoder, reading, target)

    monkeypatch.setattr(question, "choose", refuses)
    found = outcomes(decoder, asked)
    assert [number for number, one in found.items() if one.failure] == [2]
    assert len(held) == len(WORDS)
    assert not [one for one in held if one() is not None]


@pytest.fixture
def quiet():
    """No log that keeps what it is told, and no garbage collector to clean up behind."""
    logging.disable()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


def dynamic() -> Decoder:
    """A model whose rotary table depends on the length of the whole input."""
    config = hf.LlamaConfig(**{**tiny.BASE, "max_position_embeddings": 4})
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config).float())
    return Decoder(model, tiny.tokenizer(), "dynamic")


LONG = ["w3 w17 w9 w41 w22 w8 w11 w12 w13", "w30 w31 w32 w33 w34 w35 w36", "w7 w8 w9", "w5 w6"]


def test_a_model_that_padding_changes_gets_prompts_of_one_length():
    decoder = dynamic()
    assert decoder.positions.stretches
    asked = rows([*LONG, *(text.replace("w3", "w4") for text in LONG)])
    steps = list(batch.running(decoder, asked, [registry.get("ig-lens")]))
    parts = [step for step in steps if isinstance(step, tuple)]
    assert [{len(one.row.prompt.split()) for one in part} for part in parts] == [{9}, {7}, {3}, {2}]
    for one in (one for part in parts for one in part):
        alone = lenses.compare(decoder, one.row.prompt, lenses=["ig-lens"])
        assert one.comparison.probability == pytest.approx(alone.probability, abs=CLOSE)


def test_padding_that_changes_a_prompt_is_noticed_and_the_batch_run_one_by_one(monkeypatch):
    """A model that hides that its positions stretch: the prompt that was padded most is run alone too."""
    decoder = dynamic()
    decoder._layout = dataclasses.replace(decoder._layout, positions=Positions(4, False))
    prompts = [tokens.encode(decoder.tokenizer, text) for text in LONG[:3]]
    with pytest.raises(padded.PaddingMatters):
        together.ask(decoder, prompts, [None] * len(prompts))
    for number, one in outcomes(decoder, rows(LONG)).items():
        alone = lenses.compare(decoder, LONG[number - 1], lenses=["ig-lens"])
        assert one.comparison.probability == pytest.approx(alone.probability, abs=CLOSE)


@pytest.mark.parametrize("family", tiny.SOME)
def test_padded_states_are_those_of_each_prompt_alone(family):
    decoder = tiny.decoder(family)
    ids = [torch.tensor(prompt) for prompt in ([3, 4], [5, 6, 7, 8, 9], [10])]
    for trace, one in zip(padded.traces(decoder, ids), ids, strict=True):
        torch.testing.assert_close(trace.residual, decoder.trace(one).residual, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "mamba", "bloom"])
def test_own_logits_are_those_of_each_prompt_alone(family):
    decoder = tiny.decoder(family)
    ids = [torch.tensor(prompt) for prompt in ([3, 4], [5, 6, 7, 8, 9], [10], [11, 12, 13])]
    places = [range(1, 2), range(3, 5), range(0, 1), range(1, 3)]
    for found, one, some in zip(padded.own(decoder, ids, places), ids, places, strict=True):
        torch.testing.assert_close(found, decoder.own(one)[list(some)], rtol=1e-4, atol=1e-4)


def test_a_readout_that_a_batchs_roundings_put_off_is_proved_by_itself(monkeypatch):
    """Two passes of different shapes differ in their last bits, sometimes by more than the proof allows."""
    own = padded.own
    monkeypatch.setattr(padded, "own", lambda *args: [one * (1 + 1e-4) for one in own(*args)])
    for number, one in outcomes(tiny.decoder("gpt2"), rows(WORDS)).items():
        alone = lenses.compare(tiny.decoder("gpt2"), WORDS[number - 1], lenses=["ig-lens"])
        assert one.comparison.probability == alone.probability


def ends(*lengths: int) -> list[range]:
    """Prompts of these lengths, each read after its last token."""
    return [range(length - 1, length) for length in lengths]


@pytest.mark.parametrize("family", ["gpt2", "bloom", "openai-gpt"])
def test_a_pass_fits_by_its_states_and_its_logits(family, monkeypatch):
    decoder = tiny.decoder(family)
    assert padded.fits(decoder, ends(5, 5, 4, 3))
    monkeypatch.setitem(padded.STATES, "cpu", 4 * 16 * 4 * 20)
    assert padded.fits(decoder, ends(5, 5, 4, 3))
    assert not padded.fits(decoder, ends(6, 5, 4, 3))  # 24 tokens with padding
    monkeypatch.setitem(padded.STATES, "cpu", 1 << 30)
    kept = 3 if decoder.spares_head else 5
    monkeypatch.setattr(padded, "BUDGET", 4 * kept * 4 * 64)
    assert padded.fits(decoder, ends(5, 5, 4, 3))
    assert not padded.fits(decoder, ends(5, 5, 4, 3, 3))
    monkeypatch.setattr(padded, "BUDGET", 1 << 30)
    monkeypatch.setattr(padded, "TOKENS", {"cpu": 20})
    assert padded.fits(decoder, ends(5, 5, 4, 3))
    assert not padded.fits(decoder, ends(5, 5, 4, 3, 3))
    assert padded.fits(decoder, ends(40))  # one prompt always goes, however long


def test_a_question_asked_together_says_what_is_wrong_with_it_and_with_no_other():
    decoder = tiny.decoder("gpt2")
    prompts = [tokens.encode(decoder.tokenizer, text) for text in ("w3", "w4 w5", " ".join(["w3"] * 40))]
    first, second, third = together.ask(decoder, prompts, ["w5", "nosuch", None])
    assert first.target.token == 5
    assert isinstance(second, BadPrompt)
    assert isinstance(third, BadPrompt)


def test_the_longest_prompts_of_a_window_go_first_and_no_pass_holds_two_windows(monkeypatch):
    monkeypatch.setattr(batch, "WINDOW", 4)
    decoder = tiny.decoder("gpt2")
    steps = batch.running(decoder, rows(WORDS), [registry.get("logit-lens")], batch_size=3)
    parts = [[one.row.row for one in step] for step in steps if isinstance(step, tuple)]
    assert parts == [[4, 1, 3], [2], [5, 6]]


def test_a_pass_is_bounded_by_its_tokens_too(monkeypatch):
    monkeypatch.setattr(
        padded, "fits", lambda decoder, places: len(places) * max(one.stop for one in places) <= 12
    )
    decoder = tiny.decoder("gpt2")
    steps = batch.running(decoder, rows(WORDS), [registry.get("logit-lens")])
    parts = [[len(one.row.prompt.split()) for one in step] for step in steps if isinstance(step, tuple)]
    assert all(len(part) == 1 or len(part) * max(part) <= 12 for part in parts)
    assert sum(map(len, parts)) == len(WORDS)


def test_progress_counts_the_rows_that_are_done():
    steps = list(batch.running(tiny.decoder("gpt2"), rows(WORDS), [registry.get("dla")], batch_size=2))
    told = [step.done for step in steps if isinstance(step, Progress)]
    assert told == sorted(told)
    assert told[-1] == len(WORDS)


def test_slow_lenses_run_on_lists_too():
    decoder = tiny.decoder("llama")
    found = outcomes(decoder, rows(WORDS[:2]), SLOW)
    alone = lenses.compare(decoder, WORDS[0], lenses=SLOW)
    for mine, theirs in zip(found[1].comparison.results, alone.results, strict=True):
        np.testing.assert_allclose(mine.attribution.values, theirs.attribution.values, atol=1e-5)


def test_a_batch_leaves_the_model_as_it_was():
    decoder = tiny.decoder("gpt2")
    before = decoder.own(tiny.IDS)
    list(batch.run(decoder, rows(WORDS)))
    assert torch.equal(before, decoder.own(tiny.IDS))
    assert not any(module._forward_hooks for module in decoder.model.modules())


def test_states_that_are_no_numbers_are_an_error_of_their_own():
    decoder = tiny.decoder("gpt2")
    trace = decoder.trace(tiny.IDS)
    trace.residual[2, 1, 0] = torch.nan
    with pytest.raises(NonFinite, match="depth 2"):
        decoder.finite(trace)
