"""A host's limit holds for all that a model is given, and for the memory that a batch may take."""

from __future__ import annotations

import pytest

from lenses import batch, limits, paths, registry
from lenses.decoder import Decoder
from lenses.errors import BadPrompt, LensesError
from lenses.lens import fields
from lenses.prompts import Row
from lenses.question import ask
from lenses.tokens import encode
from lenses.ui import answers
from lenses.ui.answers import Ask
from lenses.ui.shelf import Choice, Held
from tests import tiny

MOST = 8
WORD, LONG = "w5 w6 w7", "w5 w6 w7 w8"
"""A word that just fits after six tokens, since its last token is not read, and one that does not."""
AGAINST = [
    ("ig-lens", {"readout": "difference"}),
    ("logit-lens", {"readout": "log-odds"}),
    ("dla", {"readout": "difference"}),
]


class Seen:
    """A decoder of its own that tells the longest text it was given."""

    def __init__(self) -> None:
        self.decoder = Decoder(tiny.model("llama"), tiny.tokenizer(), "llama")
        self.longest = 0
        self.decoder.model.get_input_embeddings().register_forward_hook(self._saw)

    def _saw(self, module, given, made) -> None:
        self.longest = max(self.longest, made.shape[-2])


@pytest.fixture
def seen():
    return Seen()


@pytest.mark.parametrize(("name", "options"), AGAINST)
def test_a_list_gives_the_model_no_more_than_is_taken_by_prompt_target_or_other_word(name, options, seen):
    long = " ".join(["w9"] * (MOST + 1))
    rows = [
        Row(1, 1, tiny.PROMPT, WORD), Row(2, 2, tiny.PROMPT, LONG), Row(3, 3, long, None),
        Row(4, 4, tiny.PROMPT, "w9 " * 10_000), Row(5, 5, "w9 " * 10_000, "w5"),
    ]  # fmt: skip
    for other, failing in ((WORD, [2, 3, 4, 5]), (LONG, [1, 2, 3, 4, 5])):
        lens = registry.get(name, **options, against=other)
        steps = list(batch.running(seen.decoder, rows, [lens], longest=MOST))
        found = {one.row.row: one.failure for step in steps if isinstance(step, tuple) for one in step}
        assert [row for row, failure in sorted(found.items()) if failure] == failing
        assert all(f"at most {MOST}" in found[row] for row in failing)
        # The word alone is read in its place too: it is no longer than the two together.
        assert seen.longest == MOST


@pytest.mark.parametrize(("name", "options"), AGAINST)
def test_a_page_gives_the_model_no_more_than_is_taken(name, options, seen, fresh, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", str(MOST))
    held, place = Held(Choice("llama"), seen.decoder, 1), Ask(tiny.PROMPT)
    for word in (LONG, "w9 " * 10_000):
        with pytest.raises(BadPrompt, match=f"at most {MOST}"):
            answers.question(held, place, word)
        found = answers.question(held, place, WORD)
        lens = registry.get(name, **options, against=word)
        (card,) = answers.answer(held, place, found, (lens,), "a").cards
        assert f"at most {MOST}" in card.refusal
        work = answers.map_work(held, place, lens, 1)
        with pytest.raises(BadPrompt, match=f"at most {MOST}"):
            list(work())
    lens = registry.get(name, **options, against=WORD)
    (card,) = answers.answer(held, place, found, (lens,), "a").cards
    assert (card.refusal, card.result is None) == ("", False)
    with pytest.raises(BadPrompt, match="prompt and word have 9 tokens"):
        list(answers.map_work(held, place, lens, 1)())  # the token that it adds counts too
    with pytest.raises(BadPrompt, match="characters"):
        answers.prompt(held, Ask("w9 " * 10_000))
    assert seen.longest == MOST


def test_a_slow_lens_is_refused_for_its_own_word_too(seen, fresh, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", str(MOST))
    held, place = Held(Choice("llama"), seen.decoder, 1), Ask(tiny.PROMPT)
    lens = registry.get("ig-lens", estimator="gradient", readout="difference", against=LONG)
    assert lens.slow
    found = answers.question(held, place, WORD)
    answers.answer(held, place, found, (lens,), "a")
    assert answers.jobs().idle(20.0)
    assert f"at most {MOST}" in answers.answer(held, place, found, (lens,), "a").cards[0].refusal


def test_a_text_is_not_split_into_tokens_where_it_can_only_be_too_long():
    def never(*given, **options):
        raise AssertionError("it was split")

    prompt = encode(tiny.tokenizer(), tiny.PROMPT)
    corpus = registry.get("ig-lens", baseline="corpus", corpus="x" * 8001)
    for refuse in (
        lambda: limits.refuse_words(never, prompt, 5, ["x" * 8001], MOST),
        lambda: limits.refuse_lens(corpus, never, prompt, 5, MOST),
        lambda: limits.refuse_text("the prompt", "x" * 8001, MOST),
    ):
        with pytest.raises(BadPrompt, match="has 8001 characters and at most 8 tokens are taken here"):
            refuse()
    limits.refuse_text("the prompt", "x" * 8000, MOST)
    limits.refuse_text("the prompt", "x" * 80_000, None)


def test_every_option_that_is_another_word_counts():
    # What a lens reads after the prompt shows by what it refuses: a word that the vocabulary lacks.
    found = ask(tiny.decoder("llama"), tiny.PROMPT)
    for name, lens in registry.LENSES.items():
        for f in fields(lens):
            if f.type != "str" or f.metadata.get("path"):
                continue
            made = tiny.lens("llama", name, readout="difference", **{f.name: "nosuchword"})
            with pytest.raises(LensesError, match="nosuchword"):
                made.attribute(tiny.decoder("llama"), found.trace, found.target)
            assert f.metadata.get("word"), (name, f.name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("conductance", {"engine": "captum"}),
        ("conductance", {"engine": "sweep"}),
        ("layer-ig", {"engine": "captum"}),
        ("layer-ig", {"engine": "wave"}),
    ],
)
def test_no_engine_takes_more_points_at_once_than_fit(name, options, monkeypatch):
    decoder = tiny.decoder("llama")
    found = ask(decoder, tiny.PROMPT, target="w5")
    expected = registry.get(name, **options, steps=20).attribute(decoder, found.trace, found.target)
    path = paths.input_path(decoder, found.trace, found.target, "mean", 0)
    monkeypatch.setattr(paths, "MEMORY", 3 * path.weighs(0))
    rows = []
    whole = paths.InputPath.f
    monkeypatch.setattr(
        paths.InputPath, "f", lambda path, logits: rows.append(len(logits)) or whole(path, logits)
    )
    same = registry.get(name, **options, steps=20).attribute(decoder, found.trace, found.target)
    # The last depth weighs least.
    assert 0 < max(rows) <= (3 if name == "conductance" else path.fits(decoder.blocks))
    assert max(rows) < 20
    assert same.values == pytest.approx(expected.values, abs=1e-6)  # rounding of other batches
