"""Several prompts in one pass, padded on the right: the same numbers as one by one.

A token of a decoder-only model never sees what follows it (proved at load), and padding on the right
leaves every position where it was, so no mask is needed. Models whose positions depend on the length of
the whole input get prompts of one length (`batch`); where padding matters all the same, `traces`
notices and says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenses.decoder import Decoder
from lenses.readout import BUDGET
from lenses.trace import Trace

SAME = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How far a state may be from the one that its prompt has alone, relative to its length: rounding."""

STATES = {"cpu": 128 << 20}
"""Bytes of states that one pass may leave behind on a device."""

PLENTY = 1 << 30
"""The same for any other device, where it takes large batches to keep it busy."""

TOKENS = {"cpu": 1024}
"""Tokens in one pass, padding and all, from which on a larger one is no faster on a device."""

MANY = 1 << 14
"""The same for any other device."""


class PaddingMatters(Exception):
    """Padding changes what this model makes of a prompt: run them one by one."""


@torch.no_grad()
def traces(decoder: Decoder, ids: Sequence[Int[Tensor, " _"]]) -> list[Trace]:
    """The trace of each prompt, all in one pass; they are not looked at for infinities.

    The prompt with the most padding is run alone as well, and has to come out the same (one of equal
    tokens would tell nothing: attention finds the same wherever it looks). Raises `PaddingMatters`
    where it does not.
    """
    states, _ = decoder.flow(pad(ids), positions=[0])
    made = [Trace(one, torch.stack([state[k, : len(one)] for state in states])) for k, one in enumerate(ids)]
    telling = [trace for trace in made if len(trace.ids.unique()) > 1 and trace.residual.isfinite().all()]
    shortest = min(telling, key=lambda trace: trace.positions, default=made[0])
    if 1 < shortest.positions < max(map(len, ids)):
        _refuse_difference(decoder, shortest)
    return made


@torch.no_grad()
def own(
    decoder: Decoder, ids: Sequence[Int[Tensor, " _"]], places: Sequence[range]
) -> list[Float[Tensor, "place vocabulary"]]:
    """The untouched model's own logits of each prompt after its places.

    In one pass of the same shape as that of `traces`, so that both make the same roundings.
    """
    kept = sorted(set().union(*places))
    logits = decoder.own_batch(pad(ids), kept)
    return [logits[row, [kept.index(one) for one in some]] for row, some in enumerate(places)]


def pad(ids: Sequence[Int[Tensor, " _"]]) -> Int[Tensor, "row position"]:
    """The prompts in one tensor, each followed by its own last token: no model takes that for padding."""
    longest = max(map(len, ids))
    return torch.stack([torch.cat([one, one[-1:].expand(longest - len(one))]) for one in ids])


def fits(decoder: Decoder, places: Sequence[range]) -> bool:
    """Whether prompts that are read at these places, the last of which is their end, may go through in
    one pass: it must leave no more states and logits than memory has room for, and short passes of like
    lengths waste less on padding."""
    longest, count = max(one.stop for one in places), len(places)
    state = torch.finfo(decoder.dtype).bits // 8 * decoder.width * (decoder.blocks + 1)
    kept = len(set().union(*places)) if decoder.spares_head else longest
    tokens = count * longest
    if tokens > TOKENS.get(decoder.device.type, MANY) and count > 1:
        return False
    return (
        tokens * state <= STATES.get(decoder.device.type, PLENTY)
        and count * kept * 4 * decoder.vocabulary <= BUDGET
    )


def _refuse_difference(decoder: Decoder, padded: Trace) -> None:
    alone = decoder.trace(padded.ids).residual.double()
    off = (padded.residual.double() - alone).norm(dim=-1) / alone.norm(dim=-1).clamp_min(1e-30)
    if not off.max() <= SAME.get(decoder.dtype, 1e-4):
        raise PaddingMatters
