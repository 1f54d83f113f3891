"""Prompts of a wanted number of tokens, and the targets of a map of them."""

from __future__ import annotations

from lenses import tokens
from lenses.decoder import Decoder
from lenses.tokens import Prompt

SHORT = "The capital of France is"
PROSE = (
    "The river rises in the hills above the old town and runs past three mills, a school and a small "
    "harbour before it meets the sea. In spring the water is high and brown, and the children are told to "
    "stay on the bridge. A woman called Anna has written down its level every morning since 1974; her "
    "notes fill nine books, and an engineer from the city once came to copy them. He wrote that no gauge "
    "on the coast had fewer gaps. When the second mill closed, its wheel was sold to a museum, but the "
    "weir was left, because the trout above it had become worth more than the flour ever was. "
)


def prompt(decoder: Decoder, count: int) -> Prompt:
    """Running text of so many tokens; one of five is about France."""
    if count == 5:
        return tokens.encode(decoder.tokenizer, SHORT)
    ids = decoder.tokenizer(PROSE * (1 + count // 80)).input_ids[:count]
    made = tokens.encode(decoder.tokenizer, decoder.tokenizer.decode(ids))
    if len(made.tokens) != count:
        raise ValueError(f"the text has {len(made.tokens)} tokens where {count} are wanted")
    return made


def targets(decoder: Decoder, ids: list[int]) -> list[int]:
    """What each position is asked for: the token that follows, and last the model's likeliest."""
    return [*ids[1:], int(decoder.own(ids, [len(ids) - 1])[0].argmax())]
