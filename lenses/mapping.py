"""One lens over every position of a prompt and of its greedy answer, with progress.

Law: column k is what the lens says of a question at position k whose target is the token that
follows; its end is the model's own probability of it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from lenses import surface, tokens
from lenses.comparison import describe, provenance
from lenses.decoder import Decoder
from lenses.depth_map import Column, DepthMap
from lenses.errors import BadOption
from lenses.lens import Lens
from lenses.progress import Progress, told
from lenses.question import proved
from lenses.surface import Ranked
from lenses.target import Target
from lenses.tokens import Prompt


def mapping(
    decoder: Decoder, prompt: Prompt, lens: Lens, *, answer: int = 0, top: int = 0
) -> Generator[Progress, None, DepthMap]:
    """The map of a prompt and of `answer` greedy tokens after it; `top` adds the likeliest k a cell.

    Yields its progress. Raises what asking a question raises, and `BadOption` for a lens whose
    values are not one a depth of the model.
    """
    text = yield from answered(decoder, prompt, answer)
    yield Progress("reading the text")
    trace = decoder.trace(text.ids)
    owns = proved(decoder, trace, list(range(trace.positions)))
    # With an answer, its last token has nothing after it that was generated.
    count = trace.positions - (text is not prompt)
    columns, gap = [], decoder.readout_gap
    for place, (own, found) in zip(range(count), owns, strict=False):
        last = place + 1 == trace.positions
        target = Target(place, int(own.argmax()) if last else text.ids[place + 1])
        gap = max(gap, found)
        shown = tokens.text_of(decoder.tokenizer, target.token) if last else text.tokens[place + 1].text
        step = Progress(f"explaining token {place + 1} of {count}", place, count)
        attribution = yield from told(lens.attributing(decoder, trace, target), step)
        columns.append(
            Column(
                place,
                Ranked(target.token, shown, float(own[target.token])),
                replace(attribution, positions=None),  # tokens × tokens × depths, which nobody looks at
                surface.look(decoder, trace, target, top) if top else None,
            )
        )
    return DepthMap(
        describe(decoder, gap), text, None if text is prompt else len(prompt.tokens), lens.title,
        tuple(columns), prompt.warnings, provenance(),
    )  # fmt: skip


def answered(decoder: Decoder, prompt: Prompt, count: int) -> Generator[Progress, None, Prompt]:
    """The prompt with up to `count` tokens after it, each the model's most likely next one.

    Ends early at the model's end-of-text token, which is kept.
    """
    if count < 0:
        raise BadOption(f"the answer must have at least 0 tokens, not {count}")
    ids = prompt.ids
    for step in range(count):
        yield Progress("writing the answer", step, count)
        logits = decoder.own(ids, [len(ids) - 1])[0]
        ids = [*ids, int(np.argmax(logits.double().cpu().numpy()))]
        if ids[-1] == decoder.tokenizer.eos_token_id:
            break
    return replace(prompt, tokens=tokens.as_tokens(decoder.tokenizer, ids)) if count else prompt
