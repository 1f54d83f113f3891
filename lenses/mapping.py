"""One lens over every position of a prompt and of its greedy answer, with progress.

Law: column k is what the lens says of a question at position k whose target is the token that
follows; its end is the model's own probability of it. Positions are read together, a coarse stride of
depths first and then the depths between, so that a picture of a long text stands after a tenth of the
work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lenses import question, readout, surface, tokens
from lenses.attribution import Attribution
from lenses.comparison import describe, provenance
from lenses.decoder import Decoder
from lenses.depth_map import Column, DepthMap
from lenses.errors import BadOption
from lenses.lens import Lens
from lenses.progress import Progress, told
from lenses.surface import Ranked, Surface
from lenses.target import Target
from lenses.tokens import Prompt
from lenses.trace import Trace

CHUNKS = 4
"""How many chunks of logits are read between two words of progress."""


def mapping(
    decoder: Decoder, prompt: Prompt, lens: Lens, *, answer: int = 0, top: int = 0
) -> Generator[Progress, None, DepthMap]:
    """The map of a prompt and of `answer` greedy tokens after it; `top` adds the likeliest k a cell.

    Yields its progress, with coarse maps as previews. Raises what asking a question raises, and
    `BadOption` for a lens whose values are not one a depth of the model.
    """
    text = yield from answered(decoder, prompt, answer)
    yield Progress("reading the text")
    trace = decoder.trace(text.ids)
    own, gap = question.proved_everywhere(decoder, trace, trace.positions - 1)
    # With an answer, its last token has nothing after it that was generated.
    count = trace.positions - (text is not prompt)
    following = [*text.ids[1:], int(own.argmax())]
    targets = [Target(place, following[place]) for place in range(count)]

    def made(found: Sequence[Attribution], seen: Sequence[Surface | None]) -> DepthMap:
        return DepthMap(
            describe(decoder, max(gap, decoder.readout_gap)), text,
            None if text is prompt else len(prompt.tokens), lens.title,
            tuple(map(partial(_column, decoder, text, trace), targets, found, seen)),
            prompt.warnings, provenance(),
        )  # fmt: skip

    preview = yield from _previewed(decoder, trace, targets, lens, bool(top), made)
    size = max(1, CHUNKS * readout.chunk_rows(decoder) // (trace.blocks + 1))
    for start in range(0, count, size):
        yield Progress("preparing the method", start, count, preview)
        lens.prepare(decoder, [(trace, target) for target in targets[start : start + size]])
    attributions, seen = [], []
    for target in targets:
        step = Progress(f"explaining token {target.position + 1} of {count}", target.position, count, preview)
        attributions.append((yield from told(lens.attributing(decoder, trace, target), step)))
        seen.append(surface.look(decoder, trace, target, top) if top else None)
    return made(attributions, seen)


def _previewed(
    decoder: Decoder,
    trace: Trace,
    targets: Sequence[Target],
    lens: Lens,
    detail: bool,
    made: Callable[[Sequence[Attribution], Sequence[None]], DepthMap],
) -> Generator[Progress, None, DepthMap | None]:
    """Read all that the lens starts from (everything for `detail`), and return the last coarse map."""
    count = len(targets)
    wanted = range(trace.blocks + 1) if detail else {*lens.levels(trace.blocks), trace.blocks}
    needed, read, preview = sorted(wanted), list[int](), None
    for stage in stages(needed, many=count * len(needed) > readout.chunk_rows(decoder)):
        step = Progress("reading every depth", count * len(read), count * len(needed), preview)
        yield from _read(decoder, trace, targets, stage, detail, step)
        read = sorted({*read, *stage})
        if len(read) < len(needed):
            levels = (readout.levels(decoder, trace, t.position, t.token, read) for t in targets)
            there = [one for one in (lens.sketch(read, found) for found in levels) if one is not None]
            preview = made(there, [None] * count) if len(there) == count else None
    return preview


def stages(depths: Sequence[int], many: bool) -> list[list[int]]:
    """The order in which depths are read: every 16th or so first, then those between them.

    All at once where there are not `many` rows; the last depth is always in the first stage.
    """
    widest = (len(depths) - 1) * 2 // 3 if many else 1
    strides = [1, *(2**power for power in range(1, 12) if 2**power <= widest)]
    order: list[list[int]] = []
    for stride in reversed(strides):
        before = {depth for stage in order for depth in stage}
        kept = {*depths[::stride], depths[-1]}
        order.append(sorted(kept - before))
    return order


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


def _read(
    decoder: Decoder,
    trace: Trace,
    targets: Sequence[Target],
    depths: Sequence[int],
    detail: bool,
    step: Progress,
) -> Generator[Progress, None, None]:
    """Read these depths of every target, so many positions at a time, and remember them."""
    size = max(1, CHUNKS * readout.chunk_rows(decoder) // len(depths))
    for start in range(0, len(targets), size):
        yield replace(step, done=step.done + start * len(depths))
        wanted = [(trace, target.position, target.token) for target in targets[start : start + size]]
        readout.remember(decoder, wanted, depths, detail)


def _column(
    decoder: Decoder,
    text: Prompt,
    trace: Trace,
    target: Target,
    attribution: Attribution,
    seen: Surface | None,
) -> Column:
    """The model's own probability is what its last state reads, as was proved."""
    (own,) = readout.levels(decoder, trace, target.position, target.token, [trace.blocks])
    after = target.position + 1
    written = text.tokens[after].text if after < len(text.tokens) else None
    shown = tokens.text_of(decoder.tokenizer, target.token) if written is None else written
    # Positions would be tokens × tokens × depths, which nobody looks at.
    attribution = replace(attribution, positions=None)
    return Column(target.position, Ranked(target.token, shown, float(own)), attribution, seen)
