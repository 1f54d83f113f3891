"""Text ↔ tokens, with nothing hidden: what was added, what can't be seen, what a token really is."""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from lenses.errors import BadPrompt


@dataclass(frozen=True)
class Token:
    """One token of a prompt; `text` is what it stands for, spaces and line ends as they are."""

    position: int
    id: int
    text: str


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model reads it, and what a reader should be warned of."""

    text: str
    tokens: tuple[Token, ...]
    warnings: tuple[str, ...] = ()
    chat: bool = False

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


def encode(tokenizer: Any, text: str, chat: bool = False) -> Prompt:
    """`text` as the tokenizer itself would read it (its own BOS setting), or as a chat message.

    Raises `BadPrompt` for an empty prompt of a model without BOS, and for `chat` without template.
    """
    typed = plain_ids(tokenizer, text)
    ids = _chat(tokenizer, text) if chat else list(tokenizer(text).input_ids)
    warnings = _odd(text, chat) + _strange(tokenizer, text, typed)
    if not typed and not chat:
        if tokenizer.bos_token_id is None:
            raise BadPrompt("the prompt is empty and the model has no BOS token: type at least a word")
        ids = ids or [tokenizer.bos_token_id]
        warnings.append(f"the prompt is empty: the model starts from {tokenizer.bos_token} alone")
    return Prompt(text, as_tokens(tokenizer, ids), tuple(warnings), chat)


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of `text` alone, without the tokens that the tokenizer adds around a prompt."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadPrompt(f"{text!r} holds {text[error.start]!r}, which is not text: give UTF-8") from error
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def as_tokens(tokenizer: Any, ids: list[int]) -> tuple[Token, ...]:
    """The tokens of a sequence; parts of one character say which part of what they are."""
    data = [_bytes(tokenizer, id) for id in ids]
    texts: list[str] = []
    while len(texts) < len(ids):
        start = len(texts)
        texts.extend(_group(tokenizer, ids[start:], data[start:]))
    return tuple(Token(k, int(id), text) for k, (id, text) in enumerate(zip(ids, texts, strict=True)))


def text_of(tokenizer: Any, id: int) -> str:
    """What one token stands for by itself; `⟨C4⟩` for a part of a character."""
    data = _bytes(tokenizer, id)
    return data if isinstance(data, str) else _shown(data)


def visible(text: str) -> str:
    """A label in which spaces at the ends, line ends and invisible characters can be seen."""
    inner = text.strip(" ")
    left = len(text) - len(text.lstrip(" "))
    right = len(text) - len(inner) - left if inner else 0
    return "␣" * left + "".join(map(_mark, inner)) + "␣" * right


def invisible(character: str) -> bool:
    """Whether a character can't be told from nothing, or from a space, by looking."""
    if character in " \n\t\r":
        return False
    return character in _BLANK or unicodedata.category(character) in ("Cf", "Zs", "Zl", "Zp", "Cc")


# Letters, a symbol and a mark to Unicode, nothing to the eye.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800\u034f"
_MARKS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}


def _mark(character: str) -> str:
    if invisible(character):
        return f"⟨U+{ord(character):04X}⟩"
    return _MARKS.get(character, character)


def _chat(tokenizer: Any, text: str) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        raise BadPrompt("this model has no chat template: leave out --chat")
    from jinja2 import TemplateError

    message = [{"role": "user", "content": text}]
    try:
        # The template writes its own BOS; the ids are taken as they are.
        encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    except TemplateError as error:
        raise BadPrompt(f"the model's chat template refuses this message: {error}") from error
    return list(encoded["input_ids"])


def _odd(text: str, chat: bool) -> list[str]:
    """What a reader of the text alone would not see."""
    found = []
    if text.endswith(" ") and not chat:
        found.append(
            "the prompt ends in a space: most tokenizers put the space into the next word's token, so "
            "the model seldom saw this; leave it out"
        )
    hidden = sorted({c for c in text if invisible(c)})
    if hidden:
        names = ", ".join(f"U+{ord(c):04X} {unicodedata.name(c, 'control character')}" for c in hidden)
        found.append(f"the prompt holds invisible characters ({names}), which change the prediction")
    return found


def _strange(tokenizer: Any, text: str, ids: list[int]) -> list[str]:
    """Where the tokenizer read something else than the words that were typed."""
    found = []
    added = {str(t) for t in tokenizer.all_special_tokens} | set(tokenizer.get_added_vocab())
    # Some vocabularies hold runs of spaces as added tokens; those are read as the text they are.
    read = {str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)} & added
    if typed := sorted(token for token in read if token.strip() and token in text):
        found.append(f"{', '.join(typed)} in the prompt was read as a special token, not as text")
    if lost := unknown(tokenizer, text, ids):
        found.append(
            f"{lost} of the prompt's tokens stand for words that are not in this model's vocabulary: "
            f"the model sees {tokenizer.unk_token} there"
        )
    if dropped := _dropped(tokenizer, text, ids):
        found.append(
            f"the vocabulary lacks bytes of {', '.join(map(repr, dropped))}: the tokenizer leaves them "
            "out, and the model does not see what was typed"
        )
    return found


def _dropped(tokenizer: Any, text: str, ids: list[int]) -> list[str]:
    """The characters that a byte vocabulary without some of the bytes cannot spell."""
    if _style(tokenizer) != "bytes" or tokenizer.backend_tokenizer.normalizer is not None:
        return []

    def spelled(ids: list[int]) -> bytes:
        data = (_bytes(tokenizer, id) for id in ids)
        # Added tokens may take the spaces beside them, and a tokenizer may begin with one.
        return b"".join(d.encode() if isinstance(d, str) else d for d in data).replace(b" ", b"")

    def kept(text: str, ids: list[int]) -> bool:
        return spelled(ids) == text.replace(" ", "").encode()

    characters = [] if kept(text, ids) else sorted(set(text))
    return [c for c in characters if not kept(c, plain_ids(tokenizer, c))]


def unknown(tokenizer: Any, text: str, ids: list[int]) -> int:
    """How many of a text's ids stand for something that the vocabulary lacks."""
    if tokenizer.unk_token_id is None or str(tokenizer.unk_token) in text:
        return 0
    return ids.count(tokenizer.unk_token_id)


def _group(tokenizer: Any, ids: list[int], data: list[bytes | str]) -> list[str]:
    """The texts of the next token, or of the next few that share characters."""
    if isinstance(data[0], str):
        return [data[0]]
    joined = b""
    for count, piece in enumerate(data[:8], start=1):
        if isinstance(piece, str):
            break
        joined += piece
        try:
            text = joined.decode("utf-8")
        except UnicodeDecodeError:
            continue
        return [text] if count == 1 else [f"{text}({k}/{count})" for k in range(1, count + 1)]
    return [_shown(data[0])]


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda m: f"⟨{ord(m[0]) - 0xDC00:02X}⟩", text)


def _bytes(tokenizer: Any, id: int) -> bytes | str:
    """The bytes that a token stands for, or its text where it is more than bytes."""
    piece = tokenizer.convert_ids_to_tokens(int(id))
    if piece is None or not isinstance(piece, str):
        return f"[id {id}]"
    if piece in tokenizer.get_added_vocab():
        return piece
    style = _style(tokenizer)
    if style == "bytes" and all(c in _byte_alphabet() for c in piece):
        return bytes(_byte_alphabet()[c] for c in piece)
    if style == "sentencepiece":
        byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
        return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()
    return piece.removesuffix("</w>") + " " if style == "word ends" and piece.endswith("</w>") else piece


def _style(tokenizer: Any) -> str:
    """How the tokenizer writes bytes and spaces, read off its own decoder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return "sentencepiece" if hasattr(tokenizer, "sp_model") else "words"
    decoder = b"" if backend.decoder is None else backend.decoder.__getstate__()
    if b"ByteLevel" in decoder:
        return "bytes"
    if b"</w>" in decoder:
        return "word ends"
    return "sentencepiece" if b"Metaspace" in decoder or "▁".encode() in decoder else "words"


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + k): b for k, b in enumerate(others)}
