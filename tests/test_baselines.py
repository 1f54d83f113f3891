"""Where a path can start: every baseline by its slow twin, with a ledger that closes from it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

import lenses
from lenses import baseline, readout, registry
from lenses.attribution import Verdict, check
from lenses.decoder import Decoder
from lenses.errors import BadOption
from lenses.target import Target
from tests import tiny

NAMES = get_args(baseline.Name)
TEXT = "w3 w4 w5 w9 w17"
TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_states_depth_0_is_read_without_running_a_block(family):
    decoder = tiny.decoder(family)
    ids = torch.tensor(tiny.IDS)
    assert torch.equal(decoder.enter(ids), decoder.trace(ids)[0])


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_token_baseline_is_depth_0_of_the_prompt_with_that_token_in_its_place(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    for name, token in (("token", 7), ("end-of-text", decoder.tokenizer.eos_token_id)):
        for position in (0, 3, 5):
            other = [*tiny.IDS]
            other[position] = token
            twin = decoder.trace(other)[0][position]
            assert torch.equal(baseline.residual(name, decoder, trace, position, token=7), twin)


@pytest.mark.parametrize("family", tiny.SOME)
def test_a_corpus_baseline_is_the_mean_of_its_depth_0_without_the_first(family):
    decoder = tiny.decoder(family)
    twin = decoder.trace([3, 4, 5, 9, 17])[0][1:].mean(0)
    found = baseline.residual("corpus", decoder, decoder.trace(tiny.IDS), 2, corpus=TEXT)
    assert torch.allclose(found, twin)


def test_the_text_that_is_averaged_by_default_is_there_and_is_cut_to_what_the_model_takes():
    assert baseline.sample().startswith("Four score and seven years ago")
    decoder = tiny.decoder("gpt2")  # which has places for 32
    assert baseline.residual("corpus", decoder, decoder.trace(tiny.IDS), 0).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", tiny.SOME)
def test_a_ledger_from_any_baseline_closes(family, name):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    made = registry.get("ig-lens", baseline=name, token=9, corpus=TEXT).attribute(decoder, trace, TARGET)
    assert check(made).verdict is Verdict.EXACT
    assert abs(check(made).gap) <= 1e-12
    row = baseline.residual(name, decoder, trace, TARGET.position, token=9, corpus=TEXT)
    assert made.start == pytest.approx(readout.level(decoder, row[None], TARGET.token)[0], abs=1e-7)
    plain = registry.get("ig-lens").attribute(decoder, trace, TARGET)
    assert made.values[1:] == pytest.approx(plain.values[1:], abs=0)


def test_an_option_is_told_only_where_it_counts():
    assert registry.get("ig-lens", token=9, corpus=TEXT).options.keys() == {"estimator", "baseline"}
    assert registry.get("ig-lens", baseline="token", token=9).options["token"] == 9
    assert registry.get("ig-lens", baseline="corpus", corpus=TEXT).options["corpus"] == TEXT


REFUSED = [
    (dict(name="middle"), "choose embedding, mean, zero, token, end-of-text, corpus"),
    (dict(name="token", token=64), "token 64 is outside 0…63"),
    (dict(name="corpus", corpus=""), "the corpus has 0 tokens"),
    (dict(name="corpus", corpus="w3"), "the corpus has 1 tokens"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_no_path_can_start_from_is_refused_in_a_sentence(options, said):
    decoder = tiny.decoder("llama")
    with pytest.raises(BadOption, match=said):
        baseline.residual(decoder=decoder, trace=decoder.trace(tiny.IDS), position=0, **options)


def test_a_tokenizer_without_an_end_of_text_token_refuses_that_baseline():
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = None
    decoder = Decoder(tiny.model("llama"), tokenizer, "llama")
    with pytest.raises(BadOption, match="no end-of-text token: choose another baseline"):
        lenses.compare(decoder, tiny.PROMPT, lenses=[lenses.get("ig-lens", baseline="end-of-text")])


@pytest.mark.parametrize("family", tiny.SOME)
def test_starts_read_together_are_those_read_alone(family):
    decoder = tiny.decoder(family)
    traces = [decoder.trace(tiny.IDS), decoder.trace([5, 9])]
    wanted = [(traces[0], 5, 7), (traces[0], 2, 7), (traces[1], 1, 30)]
    together = baseline.starts(decoder, wanted)
    for asked, (trace, position, token) in zip(together, wanted, strict=True):
        assert list(asked) == list(baseline.PLAIN)
        for name, value in asked.items():
            row = baseline.residual(name, decoder, trace, position)
            assert value == pytest.approx(readout.level(decoder, row[None], token)[0], abs=1e-6)
    assert baseline.starts(decoder, wanted) == together


def test_a_start_that_reads_as_no_number_is_left_out(monkeypatch):
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    real = baseline.residual

    def broken(name, *rest):
        return real(name, *rest) * (np.nan if name == "zero" else 1)

    monkeypatch.setattr(baseline, "residual", broken)
    (found,) = baseline.starts(decoder, [(trace, 5, 7)])
    assert list(found) == ["embedding", "mean"]
