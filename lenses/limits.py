"""How long a text may be where a host bounds it: a prompt, and whatever is read after it.

Law: nothing that was typed gives the model a text of more tokens than the limit. A text that would have to
be longer, since no token stands for that many characters, is refused before it is split into any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lenses.errors import BadPrompt
from lenses.lens import Lens, fields
from lenses.target import written
from lenses.tokens import Prompt

CHARACTERS = 1000
"""More than a token stands for: what has more of them for every token that is allowed is not looked at."""


def refuse(what: str, count: int, most: int | None) -> None:
    """Raise `BadPrompt` where what has so many tokens has too many; no limit if `most` is None."""
    if most is not None and count > most:
        raise BadPrompt(f"{what} {count} tokens and at most {most} are taken here: leave out {count - most}")


def refuse_text(what: str, text: str, most: int | None) -> None:
    """Raise `BadPrompt` for a text that can't be of so few tokens."""
    if most is not None and len(text) > CHARACTERS * most:
        raise BadPrompt(
            f"{what} has {len(text)} characters and at most {most} tokens are taken here: shorten it"
        )


def refuse_words(
    tokenizer: Any, prompt: Prompt, position: int, words: Iterable[str], most: int | None, more: int = 0
) -> None:
    """Raise `BadPrompt` for a word that is too long to be read after a position of a prompt, to which `more`
    tokens are added before it."""
    for word in words:
        refuse_text("the word", word, most)
        if most is not None:
            # The last token of a word is only asked about, and not read.
            read = position + more + len(written(tokenizer, prompt, position, word))
            refuse("prompt and word have", read, most)


def refuse_lens(
    lens: Lens, tokenizer: Any, prompt: Prompt, position: int, most: int | None, more: int = 0
) -> None:
    """The same for the texts among a lens's options: those that count, and the words among them."""
    options = lens.options
    for f in fields(lens):
        text = options.get(f.name)
        if isinstance(text, str) and text:
            refuse_text(f"{lens.name}: {f.name}", text, most)
            words = [text] if f.metadata.get("word") else []
            refuse_words(tokenizer, prompt, position, words, most, more)
