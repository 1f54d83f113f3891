"""The store counts all that it holds, also what a trace remembers after it was put there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from lenses import halves, question, registry, words
from lenses.measure import measure
from lenses.ui import answers
from lenses.ui.answers import Ask, jobs
from lenses.ui.results import Results, size
from lenses.ui.shelf import Choice, Held
from tests import tiny


def tensors(value: object) -> int:
    """The bytes of every array that can be reached from a value, one after another, and of long names."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        texts = (part for key in value if isinstance(key, tuple) for part in key if isinstance(part, str))
        return sum(map(tensors, value.values())) + sum(map(len, texts))
    if isinstance(value, tuple | list):
        return sum(map(tensors, value))
    if dataclasses.is_dataclass(value):
        return sum(tensors(getattr(value, f.name)) for f in dataclasses.fields(value))
    return 0


@pytest.fixture
def asked():
    return question.ask(tiny.decoder("llama"), tiny.PROMPT, target="w5")


@pytest.mark.parametrize(
    ("lens", "options"),
    [
        ("logit-lens", {}),
        ("logit-lens", {"readout": "difference", "against": "w9 w7 w3"}),
        ("ig-lens", {"halves": True}),
        ("ig-lens", {"halves": True, "readout": "log-odds", "against": "w9 w7 w3"}),
        ("ig-lens", {"baseline": "corpus", "corpus": "w9 w7 w3 " * 500}),
        ("tuned-lens", {}),
    ],
)
def test_all_that_a_trace_remembers_is_counted(lens, options, asked):
    decoder = tiny.decoder("llama")
    before = size(asked.reading)
    tiny.lens("llama", lens, **options).attribute(decoder, asked.trace, asked.target)
    grown = tensors(asked.trace.memo)
    assert grown > 0
    # Beside the arrays, a hundred bytes or so for every object; the translators are not the trace's.
    assert tensors(asked.reading) <= size(asked.reading) <= before + 4 * grown + 10_000


def test_what_has_grown_since_it_was_put_is_counted_and_pushes_others_out(asked):
    kept = Results(bound=size(asked.reading) + 3000)
    kept.put("other", "x" * 2000)
    kept.put("reading", asked.reading)
    halves.middle(tiny.decoder("llama"), asked.trace)
    assert "other" in kept
    kept.weigh("reading")
    assert ("other" in kept, "reading" in kept) == (False, True)
    for k in range(9, 40):
        measure(tiny.decoder("llama"), asked.trace, asked.target, "difference", f"w{k} w3 w4 w5")
    kept.weigh("reading")  # larger than the store by now
    assert "reading" not in kept
    kept.weigh("reading")


def test_only_the_last_words_are_remembered_within_a_bound(asked, monkeypatch):
    decoder = tiny.decoder("llama")
    made: list[int] = []
    followed = words.followed
    monkeypatch.setattr(words, "followed", lambda *given: made.append(1) or followed(*given))

    def look(k: int) -> words.Word:
        return words.at_place(decoder, asked.trace, asked.target.position, (k, 3, 4))

    one = look(9).trace.residual.nbytes
    monkeypatch.setattr(words, "TOGETHER", 3 * one)
    for k in range(10, 30):
        look(k)
        kept = [v for v in asked.trace.memo[decoder].values() if isinstance(v, type(asked.trace))]
        assert sum(trace.residual.nbytes for trace in kept) <= 3 * one
    made.clear()
    for k in (27, 28, 29, 27):
        look(k)
    assert not made
    look(10)
    look(29)
    assert len(made) == 1
    look(28)  # the one that was not asked for longest
    assert len(made) == 2


def test_every_other_word_that_a_visitor_types_is_counted(fresh):
    held, ask = Held(Choice("llama"), tiny.decoder("llama"), 1), Ask(tiny.PROMPT)
    for k in range(9, 15):
        lenses = (registry.get("logit-lens", readout="difference", against=f"w{k} w7 w3"),)
        answers.answer(held, ask, answers.question(held, ask, "w5"), lenses, "a")
        reading = answers.reading(held, ask)
        (counted,) = [n for key, n in jobs().results._kept._Cache__size.items() if key[0] == "reading"]
        assert counted >= tensors(reading)
