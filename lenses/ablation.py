"""What is left of the target when a block is skipped: its input goes on as its output.

Law: skipping block b is `resume(b + 1, trace[b])`, so that skipping the last block leaves exactly what
depth L − 1 reads. All blocks of a prompt run in one wave: what comes before a skipped block is the
trace, which is there already.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses import readout
from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.paths import joint
from lenses.proof import remedy
from lenses.target import Target
from lenses.trace import Trace

SAME = 1e-5
"""How far from the model's own probability a token that runs alone may end: other kernels' rounding."""

TOKENS = 4096
"""How many tokens may be on their way at once."""


@torch.no_grad()
def skipped(
    decoder: Decoder, trace: Trace, target: Target, *, last: bool = False, memory: int = TOKENS
) -> Float[ndarray, " block"]:
    """The target's probability when block b is left out, at every position or at the `last` alone.

    That of several tokens is their joint probability. `last` means the target's own position, or those
    of its tokens: earlier ones stay as they were. `memory` bounds how many tokens run at once. Raises
    `NonFinite` where a state that is left gives no numbers.
    """
    places = list(target.positions)
    kept = places[-1] + 1
    states = _without(trace.residual[:, :kept], len(places) if last else 0)
    alone = last and kept > 1 and not target.more
    if alone and (found := _last_alone(decoder, trace, target, states[:, -1])) is not None:
        return found
    size = max(1, min(memory // kept, readout.chunk_rows(decoder) // len(places)))
    parts = []
    for blocks in torch.arange(decoder.blocks).split(size):
        joining = {int(block) + 1: states[block][None] for block in blocks}
        parts.append(_chances(decoder, decoder.wave(joining, places), target))
    return np.concatenate(parts)


def _last_alone(
    decoder: Decoder, trace: Trace, target: Target, states: Float[Tensor, "block width"]
) -> Float[ndarray, " block"] | None:
    """The same where only the target's position changes: it runs alone, with the keys and values of
    those before it. None where the model keeps none, or where a run without a change, which goes
    along as the proof, does not end at the model's own probability."""
    before = decoder.remembered(trace.ids[: target.position])
    if before is None:
        return None
    joining = {block + 1: state[None, None] for block, state in enumerate(states)}
    joining[1] = torch.cat([trace[1][None, [target.position]], joining[1]])
    logits = decoder.wave(joining, [0], after=before)
    own = readout.level(decoder, trace[-1][[target.position]], target.token)[0]
    chances = _chances(decoder, logits, target)
    return chances[1:] if abs(chances[0] - own) <= SAME else None


def _without(residual: Float[Tensor, "depth kept width"], last: int) -> Float[Tensor, "block kept width"]:
    """The state after each block as it is when that block did nothing, at all or the `last` positions."""
    if not last:
        return residual[:-1]
    states = residual[1:].clone()
    states[:, -last:] = residual[:-1, -last:]
    return states


def _chances(
    decoder: Decoder, logits: Float[Tensor, "block token vocabulary"], target: Target
) -> Float[ndarray, " block"]:
    chances = joint(logits.float(), target.tokens).double().cpu().numpy()
    if not np.isfinite(chances).all():
        raise NonFinite(f"without one of its blocks the model gives no numbers{remedy(decoder.dtype)}")
    return chances
