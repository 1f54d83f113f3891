"""What rose and fell, against a whole vocabulary sorted; and every baseline against IG-Lens's own start."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from lenses import baseline, readout, registry, surface, surfacing
from lenses.audit import audit
from lenses.decoder import Decoder
from lenses.errors import BadOption, NonFinite
from lenses.onset import onset
from lenses.target import Target
from tests import naive, tiny

LAST = len(tiny.IDS) - 1
TARGET = Target(LAST, tiny.TARGET)


def twin(family: str) -> np.ndarray:
    """Every token's probability at every depth, one whole run of a copied model a depth."""
    model = tiny.decoder(family).model
    states = naive.states(model, tiny.IDS)
    with torch.no_grad():
        rows = [naive.resumed(model, tiny.IDS, len(states) - 1, state)[-1] for state in states]
    return torch.stack(rows).double().softmax(-1).numpy()


@pytest.mark.parametrize("budget", [1, 4 * 64 * 8, readout.BUDGET])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "opt_350m"])
def test_movers_are_those_of_the_whole_vocabulary_sorted(family, budget, monkeypatch):
    monkeypatch.setattr(readout, "BUDGET", budget)
    decoder, chances = tiny.decoder(family), twin(family)
    found = surfacing.movers(decoder, decoder.trace(tiny.IDS), LAST, count=4)
    assert [one.block for one in found] == [0, 1, 2]
    for one, change in zip(found, np.diff(chances, axis=0), strict=True):
        assert one.moved == pytest.approx(abs(change).sum() / 2, abs=1e-6)
        assert [move.change for move in one.gained] == pytest.approx(np.sort(change)[::-1][:4], abs=1e-6)
        assert [move.change for move in one.lost] == pytest.approx(np.sort(change)[:4], abs=1e-6)
        for move in (*one.gained, *one.lost):
            assert move.before == pytest.approx(chances[one.block, move.id], abs=1e-6)
            assert move.after == pytest.approx(chances[one.block + 1, move.id], abs=1e-6)
            assert move.text == decoder.tokenizer.convert_ids_to_tokens(move.id)


def test_where_fewer_tokens_gain_than_are_asked_for_no_other_is_called_a_gain():
    decoder = tiny.decoder("llama")
    for one in surfacing.movers(decoder, decoder.trace(tiny.IDS), LAST, count=100):
        assert all(move.change > 0 for move in one.gained)
        assert all(move.change < 0 for move in one.lost)
        assert len(one.gained) + len(one.lost) <= 64
        gains, losses = (sum(move.change for move in part) for part in (one.gained, one.lost))
        assert (gains, losses) == (pytest.approx(one.moved, abs=1e-6), pytest.approx(-one.moved, abs=1e-6))


@pytest.mark.parametrize("budget", [1, 4 * 64 * 8, readout.BUDGET])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "opt_350m"])
def test_a_tokens_best_depth_is_where_it_is_likeliest_of_all_depths(family, budget, monkeypatch):
    monkeypatch.setattr(readout, "BUDGET", budget)
    decoder, chances = tiny.decoder(family), twin(family)
    found = surfacing.peaks(decoder, decoder.trace(tiny.IDS), LAST, count=7)
    assert [one.probability for one in found] == pytest.approx(
        np.sort(chances.max(axis=0))[::-1][:7], abs=1e-6
    )
    for one in found:
        assert one.depth == chances[:, one.id].argmax()
        assert one.levels == pytest.approx(chances[:, one.id], abs=1e-6)
        assert one.probability == one.levels.max()


def test_tokens_are_ranked_by_their_best_depth_and_not_by_the_last():
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    found = surfacing.peaks(decoder, trace, LAST, count=64)
    last = [one.levels[-1] for one in found]
    assert last != sorted(last, reverse=True)
    levels = surface.look(decoder, trace, TARGET).levels
    (target,) = (one for one in found if one.id == tiny.TARGET)
    assert target.levels == pytest.approx(levels, abs=1e-6)


def test_a_state_that_is_no_number_is_refused_and_not_ranked():
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    trace.residual[1, LAST] = float("nan")
    with pytest.raises(NonFinite, match="no token can be ranked"):
        surfacing.movers(decoder, trace, LAST)


@pytest.mark.parametrize("family", tiny.SOME)
def test_the_audit_says_of_every_baseline_what_ig_lens_starts_with(family):
    decoder = tiny.decoder(family)
    trace = decoder.trace(tiny.IDS)
    found = audit(decoder, trace, TARGET, token=9)
    assert {one.name for one in found.starts} == {*get_args(baseline.Name)}
    assert found.refusals == {}
    plain = registry.get("ig-lens").attribute(decoder, trace, TARGET)
    for one in found.starts:
        a = registry.get("ig-lens", baseline=one.name, token=9).attribute(decoder, trace, TARGET)
        assert one.probability == pytest.approx(a.start, abs=1e-7)
        assert one.delta == pytest.approx(a.end - a.start, abs=1e-7)
        assert one.first == pytest.approx(a.values[0], abs=1e-7)
        assert one.onset == onset(a.depths, a.values)
        assert one.variation == pytest.approx(abs(a.values - plain.values).sum() / 2, abs=1e-7)
        assert one.variation == pytest.approx(abs(a.start - plain.start) / 2, abs=1e-7)
        row = baseline.residual(one.name, decoder, trace, LAST, token=9)
        logits = decoder.readout(row[None])[0].double()
        assert one.likeliest.id == int(logits.argmax())
        assert one.likeliest.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)
        assert one.rank == 1 + int((logits > logits[tiny.TARGET]).sum())


def test_a_baseline_that_a_model_lacks_is_said_and_the_others_are_there(monkeypatch):
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = None
    decoder = Decoder(tiny.model("llama"), tokenizer, "llama")
    trace = decoder.trace(tiny.IDS)
    real = baseline.residual

    def broken(name, *rest):
        return real(name, *rest) * (np.nan if name == "zero" else 1)

    monkeypatch.setattr(baseline, "residual", broken)
    found = audit(decoder, trace, TARGET)
    assert [one.name for one in found.starts] == ["embedding", "mean", "corpus"]
    assert "no end-of-text token" in found.refusals["end-of-text"]
    assert "as no number" in found.refusals["zero"]


@pytest.mark.parametrize("options", [dict(token=64), dict(token=-1), dict(corpus="w3")])
def test_a_choice_that_can_not_be_used_is_refused_and_not_left_out(options):
    decoder = tiny.decoder("llama")
    with pytest.raises(BadOption):
        audit(decoder, decoder.trace(tiny.IDS), TARGET, **options)
