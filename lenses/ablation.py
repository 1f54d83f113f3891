"""What is left of the target when blocks don't do what they do: nothing, or what other prompts got.

Law: a span of blocks b…b+s−1, or the attention or the MLP of each, adds something else to the state,
and the model goes on from depth b+s. To skip is to add nothing, which is the same as an update of zero:
skipping block b is `resume(b + 1, trace[b])`, skipping its MLP `resume(b + 1, middle[b])`, and skipping
the last block leaves exactly what depth L − 1 reads. A block that is `whole` has no halves to leave out:
not a number. All spans of a prompt run in one wave: what comes before a span is the trace, which is
there already.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lenses import halves, readout
from lenses.decoder import Decoder
from lenses.errors import BadOption, NonFinite
from lenses.paths import joint
from lenses.progress import Progress, finish
from lenses.proof import remedy
from lenses.sublayers import Half
from lenses.target import Target
from lenses.trace import Trace
from lenses.updates import Replacement

SAME = 1e-5
"""How far from the model's own probability a token that runs alone may end: other kernels' rounding."""

TOKENS = 4096
"""How many tokens may be on their way at once."""

States = dict[int, Tensor]
"""A state [position, width] of each of some blocks or spans, by number."""


def skipped(
    decoder: Decoder,
    trace: Trace,
    target: Target,
    *,
    half: Half | None = None,
    span: int = 1,
    last: bool = False,
    memory: int = TOKENS,
) -> Float[ndarray, " start"]:
    """The target's probability when blocks b…b+span−1 add nothing, for each b that has room for a span.

    With a `half`, their attention or their MLP alone is left out, which is not a number where one of
    them is `whole`. That of several tokens is their joint probability. They are left out at every
    position, or at the `last` alone: the target's own, or those of its tokens; earlier ones stay as
    they were. `memory` bounds how many tokens run at once. Raises `BadOption` for a span that the model
    has no room for, and `NonFinite` where a state that is left gives no numbers.
    """
    return finish(ablating(decoder, trace, target, half=half, span=span, last=last, memory=memory))


def replaced(
    decoder: Decoder,
    trace: Trace,
    target: Target,
    instead: Replacement,
    *,
    span: int = 1,
    last: bool = False,
    memory: int = TOKENS,
) -> Float[ndarray, " start"]:
    """The same when these blocks, or the half that `instead` is made for, add what it says."""
    return finish(
        ablating(
            decoder, trace, target, half=instead.half, span=span, last=last, instead=instead, memory=memory
        )
    )


@torch.no_grad()
def ablating(
    decoder: Decoder,
    trace: Trace,
    target: Target,
    *,
    half: Half | None = None,
    span: int = 1,
    last: bool = False,
    instead: Replacement | None = None,
    memory: int = TOKENS,
) -> Generator[Progress, None, Float[ndarray, " start"]]:
    """`skipped`, or `replaced` by what is put in `instead`, with its progress."""
    if not 1 <= span <= decoder.blocks:
        raise BadOption(f"a span of {span} blocks does not fit this model, which has {decoder.blocks}")
    places = list(target.positions)
    kept, found = places[-1] + 1, np.full(decoder.blocks - span + 1, np.nan)
    yield Progress("leaving blocks out", 0, len(found))
    updates = None if instead is None else instead.at(len(places) if last else kept, last)
    left = _left(decoder, trace, kept, len(places) if last else kept, half, span, updates)
    starts = list(left)
    alone = last and kept > 1 and not target.more and starts
    if alone and (chances := _last_alone(decoder, trace, target, left, span)) is not None:
        found[starts] = chances
        return found
    size = max(1, min(memory // kept, readout.chunk_rows(decoder) // len(places)))
    for begin in range(0, len(starts), size):
        yield Progress("leaving blocks out", begin, len(starts))
        some = starts[begin : begin + size]
        joining = {start + span: left[start][None] for start in some}
        found[some] = _chances(decoder, decoder.wave(joining, places), target)
    return found


def _left(
    decoder: Decoder,
    trace: Trace,
    kept: int,
    changed: int,
    half: Half | None,
    span: int,
    updates: Float[Tensor, "block some width"] | None,
) -> States:
    """The state after each span when its blocks add something else at the last `changed` positions of
    `kept`; none for a span with a block that has no halves, where these are asked for."""
    changed = changed if updates is None else updates.shape[1]
    kinds = halves.kinds(decoder) if half else ()
    starts = [b for b in range(decoder.blocks - span + 1) if "whole" not in kinds[b : b + span]]
    states = {start: trace[start][:kept] for start in starts}
    for k in range(span):
        given = {start + k: state for start, state in states.items()}
        made = _passed(decoder, trace.ids[:kept], given, half, updates)
        states = {start: made[start + k] for start in starts}
        if changed < kept:
            before = kept - changed
            states = {b: torch.cat([trace[b + k + 1][:before], s[before:]]) for b, s in states.items()}
    return states


def _passed(
    decoder: Decoder,
    ids: Int[Tensor, " position"],
    states: States,
    half: Half | None,
    updates: Float[Tensor, "block some width"] | None,
) -> States:
    """What each block hands on from a state of its own when it, or a half of it, adds something else."""

    def added(block: int, state: Tensor) -> Tensor:
        if updates is None:
            return state
        count = updates.shape[1]
        return torch.cat([state[:-count], state[-count:] + updates[block].to(state)])

    if half is None:
        return {block: added(block, state) for block, state in states.items()}
    # An MLP that runs after attention sees what attention is replaced by; one beside it does not.
    kinds = halves.kinds(decoder)
    first = {block for block in states if half == "attention" and kinds[block] == "sequential"}
    given = {block: added(block, state) if block in first else state for block, state in states.items()}
    made = decoder.silenced(ids, given, half)
    return {block: state if block in first else added(block, state) for block, state in made.items()}


def _last_alone(
    decoder: Decoder, trace: Trace, target: Target, left: States, span: int
) -> Float[ndarray, " start"] | None:
    """The target's probability where only its own position changes: it runs alone, with the keys and
    values of those before it. None where the model keeps none, or where a run without a change, which
    goes along as the proof, does not end at the model's own probability."""
    before = decoder.remembered(trace.ids[: target.position])
    if before is None:
        return None
    joining = {start + span: state[None, -1:] for start, state in left.items()}
    first = min(joining)
    joining[first] = torch.cat([trace[first][None, [target.position]], joining[first]])
    logits = decoder.wave(joining, [0], after=before)
    own = readout.level(decoder, trace[-1][[target.position]], target.token)[0]
    chances = _chances(decoder, logits, target)
    return chances[1:] if abs(chances[0] - own) <= SAME else None


def _chances(
    decoder: Decoder, logits: Float[Tensor, "row token vocabulary"], target: Target
) -> Float[ndarray, " row"]:
    """The target's probability in float64, a row at a time."""
    rows = [joint(row.double(), target.tokens) for row in logits.split(1)]
    chances = torch.cat(rows).cpu().numpy()
    if not np.isfinite(chances).all():
        raise NonFinite(f"without some of its blocks the model gives no numbers{remedy(decoder.dtype)}")
    return chances
