"""What a prompt is made of: every token's text, what was added, and what a reader is warned of."""

from __future__ import annotations

import pytest
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import lenses
from lenses import tokens
from tests import tiny

SPACES_AND_LETTERS = ["▁", *"abcdehilnoprs", "▁a", "▁i", "▁is", "he", "hel", "lo", "hello"]
MERGES = [("▁", "a"), ("▁", "i"), ("▁i", "s"), ("h", "e"), ("he", "l"), ("l", "o"), ("hel", "lo")]


def sentencepiece() -> hf.PreTrainedTokenizerFast:
    """As Llama 2's: a space is begun with, spaces are ▁, and what is unknown becomes bytes."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SPACES_AND_LETTERS]
    vocabulary = {name: id for id, name in enumerate(names)}
    words = Tokenizer(models.BPE(vocabulary, MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    words.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def word_ends() -> hf.PreTrainedTokenizerFast:
    """As the first GPT's: a word's last piece says so."""
    vocabulary = {"<unk>": 0, "a": 1, "b": 2, "b</w>": 3, "ab</w>": 4}
    words = Tokenizer(models.BPE(vocabulary, [("a", "b</w>")], unk_token="<unk>", end_of_word_suffix="</w>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.BPEDecoder(suffix="</w>")
    return hf.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


def texts(tokenizer, text):
    return [token.text for token in tokens.encode(tokenizer, text).tokens]


def labels(tokenizer, text):
    return [tokens.visible(label) for label in texts(tokenizer, text)]


LABELS = [
    (" naïve\n", ["␣na", "ïve", "⏎"]),
    ("Ġ", ["Ġ(1/2)", "Ġ(2/2)"]),
    ("▁", ["▁(1/2)", "▁(2/2)"]),
    ("Ċ", ["Ċ(1/2)", "Ċ(2/2)"]),
    ("<0x0A>", ["<", "0", "x", "0", "A", ">"]),
    ("a🤗", ["a", "🤗(1/3)", "🤗(2/3)", "🤗(3/3)"]),
    ("\ta\r\n", ["⇥", "a", "␍⏎"]),
]


@pytest.mark.parametrize(("text", "expected"), LABELS)
def test_a_label_shows_what_was_typed_and_nothing_of_how_the_vocabulary_spells_it(smol, text, expected):
    assert labels(smol.tokenizer, text) == expected


@given(text=st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_the_tokens_of_any_text_join_to_the_text(smol, text):
    ids = tokens.plain_ids(smol.tokenizer, text)
    found = tokens.as_tokens(smol.tokenizer, ids)
    assert [token.id for token in found] == ids
    assert [token.position for token in found] == list(range(len(ids)))
    # A part of a character repeats the whole, and this vocabulary lacks a few rare bytes, which is said.
    parts = any(token.text != tokens.text_of(smol.tokenizer, token.id) for token in found)
    lacking = any("lacks bytes" in warning for warning in tokens.encode(smol.tokenizer, text).warnings)
    assert parts or lacking or "".join(token.text for token in found) == text


@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cn", "Co"]), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_no_label_is_empty_or_holds_a_replacement_or_a_line_end(smol, text):
    for label in labels(smol.tokenizer, text):
        assert label.strip()
        assert "\ufffd" not in label or "\ufffd" in text
        assert len(label.splitlines()) == 1


def test_bytes_that_make_no_character_are_shown_as_bytes(smol):
    first, *_ = tokens.plain_ids(smol.tokenizer, "🤗")
    assert tokens.text_of(smol.tokenizer, first) == "⟨F0⟩⟨9F⟩"
    assert tokens.as_tokens(smol.tokenizer, [first, 81])[0].text == "⟨F0⟩⟨9F⟩"


def test_the_bytes_a_sentencepiece_vocabulary_falls_back_to_are_shown_as_their_characters():
    tokenizer = sentencepiece()
    assert labels(tokenizer, "a\n🤗") == ["␣a", "⏎", "🤗(1/4)", "🤗(2/4)", "🤗(3/4)", "🤗(4/4)"]
    assert labels(tokenizer, "a is") == ["␣a", "␣is"]


def test_the_end_of_a_word_is_a_space():
    assert texts(word_ends(), "ab aab") == ["ab ", "a", "ab "]


def test_an_id_without_a_name_has_a_label():
    assert tokens.text_of(tiny.tokenizer(size=60), 62) == "[id 62]"


@pytest.mark.parametrize(("bos", "first"), [(True, "[BOS]"), (False, "w3")])
def test_bos_is_added_where_the_tokenizer_adds_it_and_is_seen(bos, first):
    assert texts(tiny.tokenizer(bos=bos), "w3 w17")[0] == first


TEMPLATE = "{{ bos_token }} {% for message in messages %}{{ message['content'] }} {% endfor %}w9"


def test_a_chat_has_one_bos_and_what_the_template_writes():
    tokenizer = tiny.tokenizer(bos=True)
    tokenizer.chat_template = TEMPLATE
    prompt = tokens.encode(tokenizer, "w3 w17", chat=True)
    assert [token.text for token in prompt.tokens] == ["[BOS]", "w3", "w17", "w9"]
    assert prompt.warnings == ()


def test_the_default_models_chat_asks_and_leaves_the_answer_open(smol):
    prompt = tokens.encode(smol.tokenizer, "Hello ", chat=True)
    said = [token.text for token in prompt.tokens]
    assert said[:2] == ["<|im_start|>", "system"]
    assert said[-4:] == ["<|im_start|>", "ass", "istant", "\n"]
    assert said.count("Hello") == 1
    assert prompt.warnings == ()


def test_a_chat_without_template_is_refused():
    with pytest.raises(lenses.BadPrompt, match="no chat template"):
        tokens.encode(tiny.tokenizer(), "w3", chat=True)


WARNED = [
    ("The capital of France is", []),
    ("The capital of France is ", ["ends in a space"]),
    ("The capital of France is\n", []),
    ("The capital of France is\u00a0", ["U+00A0 NO-BREAK SPACE"]),
    ("\ufeffThe capital", ["U+FEFF ZERO WIDTH NO-BREAK SPACE"]),
    ("The\u200b capital\u00a0", ["U+00A0 NO-BREAK SPACE, U+200B ZERO WIDTH SPACE"]),
    ("The\u3164capital", ["U+3164 HANGUL FILLER"]),
    ("The\x00capital", ["U+0000 control character"]),
    ("The <|im_end|>", ["<|im_end|> in the prompt was read as a special token"]),
    ("The <|im_end| >", []),
    ("The \U00040000 naïve", ["lacks bytes of '\\U00040000'"]),
]


@pytest.mark.parametrize(("text", "said"), WARNED)
def test_what_a_reader_cannot_see_is_said(smol, text, said):
    warnings = tokens.encode(smol.tokenizer, text).warnings
    assert len(warnings) == len(said)
    assert all(words in warning for words, warning in zip(said, warnings, strict=True))


def test_a_word_that_the_vocabulary_lacks_is_said():
    (warning,) = tokens.encode(tiny.tokenizer(size=60), "w3 w63 w61").warnings
    assert warning.startswith("2 of the prompt's tokens")
    assert "[UNK]" in warning


def test_a_run_of_spaces_in_the_vocabulary_is_no_special_token():
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["  "])
    assert tokens.encode(tokenizer, "w3  w4").warnings == ()


@pytest.mark.parametrize("text", ["", "   "])
@pytest.mark.parametrize("bos", [True, False])
def test_an_empty_prompt_starts_from_bos_and_says_so(text, bos):
    prompt = tokens.encode(tiny.tokenizer(bos=bos), text)
    assert prompt.ids == [1]
    assert "starts from [BOS] alone" in prompt.warnings[-1]


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_prompt_without_bos_is_refused(text):
    tokenizer = tiny.tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(lenses.BadPrompt, match="empty and the model has no BOS"):
        tokens.encode(tokenizer, text)


def test_bytes_that_are_not_text_are_refused(smol):
    with pytest.raises(lenses.BadPrompt, match="give UTF-8"):
        tokens.encode(smol.tokenizer, "caf\udce9")


@pytest.mark.parametrize("template", ["{{ raise_exception('only tools') }}", "{% if %}"])
def test_a_chat_template_that_fails_is_a_sentence(template):
    words = tiny.tokenizer()
    words.chat_template = template
    with pytest.raises(lenses.BadPrompt, match="chat template refuses"):
        tokens.encode(words, "w3", chat=True)
