"""Rows of hidden vectors → readings of a target, by the model's own tail, in bounded memory.

Law: the reading of the last residual is the model's own probability, and no chunk size changes a
reading. Rows run through `resume(L, row)` as one-token sequences; a chunk's logits fit the budget
and are normalised in place, so nothing of size rows × vocabulary is ever alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.proof import remedy
from lenses.trace import Trace

TOP = 5
"""How many of the likeliest tokens are kept beside a level."""

BUDGET = 128 << 20
"""Bytes of logits that are alive at once."""


@dataclass(frozen=True)
class Readings:
    """What the rows read: one value a row in float64, and the k likeliest tokens of each row."""

    probability: Float[ndarray, " row"]
    log_probability: Float[ndarray, " row"]
    logit: Float[ndarray, " row"]
    top: Int[ndarray, "row k"]
    top_probability: Float[ndarray, "row k"]


@torch.no_grad()
def read(
    decoder: Decoder,
    rows: Float[Tensor, "row width"],
    tokens: int | Int[Tensor, " row"],
    top: int = 0,
    budget: int = BUDGET,
) -> Readings:
    """Probability, log-probability (natural, finite where the probability underflows) and logit.

    `tokens` is the target of every row, or one for each; `top` asks for the likeliest k. Raises
    `NonFinite` where a row's logits are not numbers.
    """
    wanted = torch.as_tensor(tokens, device=rows.device).expand(len(rows))
    parts = [
        _reading(chunk, wanted[start : start + len(chunk)], top)
        for start, chunk in _logits(decoder, rows, budget)
    ]
    log, logit, ids, best = (np.concatenate(column) for column in zip(*parts, strict=True))
    if np.isnan(log).any():
        raise NonFinite(
            f"state {int(np.isnan(log).argmax())} of the {len(log)} that were read gives logits that are "
            f"not finite{remedy(decoder.dtype)}"
        )
    return Readings(np.exp(log), log, logit, ids, np.exp(best))


def depths(decoder: Decoder, trace: Trace, position: int, token: int) -> Readings:
    """What every depth of one position reads, with the likeliest `TOP`; read once for each target.

    Kept with the trace, so that lenses that start from the same levels share one pass. A trace that
    was changed in place since then is read again.
    """
    known, key = trace.memo.setdefault(decoder, {}), _key(trace, position, token)
    if key not in known:
        remember(decoder, [(trace, position, token)])
    found: Readings = known[key]
    return found


def remember(decoder: Decoder, wanted: Sequence[tuple[Trace, int, int]]) -> None:
    """Read every depth of several (trace, position, token) at once, for `depths` to find."""
    if not wanted:
        return
    rows = torch.cat([trace.residual[:, position] for trace, position, _ in wanted])
    counts = [trace.blocks + 1 for trace, _, _ in wanted]
    tokens = [torch.full((n,), token) for n, (_, _, token) in zip(counts, wanted, strict=True)]
    found = read(decoder, rows, torch.cat(tokens), top=min(TOP, decoder.vocabulary))
    cuts = np.cumsum(counts)[:-1]
    parts = zip(*(np.split(values, cuts) for values in vars(found).values()), strict=True)
    for (trace, position, token), values in zip(wanted, parts, strict=True):
        made = Readings(*(part.copy() for part in values))
        for part in vars(made).values():
            part.setflags(write=False)
        trace.memo.setdefault(decoder, {})[_key(trace, position, token)] = made


def _key(trace: Trace, position: int, token: int) -> tuple[Any, ...]:
    return position, token, trace.residual.device, trace.residual._version


def level(decoder: Decoder, rows: Float[Tensor, "row width"], token: int) -> Float[ndarray, " row"]:
    """The probability of `token` that each row reads."""
    return read(decoder, rows, token).probability


def probability(decoder: Decoder, rows: Float[Tensor, "row width"], token: int) -> Float[Tensor, " row"]:
    """The same, in the autograd graph of `rows`."""
    return chance(decoder.resume(decoder.blocks, rows[:, None])[:, 0], token)


def chance(logits: Float[Tensor, "row vocabulary"], token: int) -> Float[Tensor, " row"]:
    """The probability of `token` under logits, in float32 and differentiable."""
    logits = logits.float()
    return (logits[:, token] - logits.logsumexp(dim=-1)).exp()


def chunk_rows(decoder: Decoder, budget: int = BUDGET) -> int:
    """How many rows' logits fit the budget."""
    return max(1, budget // (4 * decoder.vocabulary))


def _logits(decoder: Decoder, rows: Tensor, budget: int) -> Iterator[tuple[int, Tensor]]:
    """Chunks of logits, each in the same memory where the head's product can be written there."""
    size = min(chunk_rows(decoder, budget), len(rows))
    buffer = decoder.buffer(size)
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        yield start, decoder.readout(chunk, None if buffer is None else buffer[: len(chunk)])


def _reading(logits: Tensor, tokens: Tensor, top: int) -> tuple[ndarray, ...]:
    """Log-probability, logit, and the top tokens with theirs; overwrites float32 logits.

    The normaliser is summed by ourselves: PyTorch's CPU kernels of softmax and log_softmax use an
    exponential of 20 units in the last place, which put 1.8e-5 of error into a probability.
    """
    logit = logits.gather(1, tokens[:, None])[:, 0].double()
    values = logits.float()
    # Rows are worked off in blocks that stay in a CPU's cache; an accelerator takes them at once.
    blocks = values.split(16 if values.device.type == "cpu" else len(values))
    parts = [_normaliser(block, top) for block in blocks]
    normaliser, best, ids = (torch.cat(column) for column in zip(*parts, strict=True))
    log, top_log = logit - normaliser, best.double() - normaliser[:, None]
    return tuple(part.cpu().numpy() for part in (log, logit, ids, top_log))


def _normaliser(block: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """log Σ exp of each row in float64, and its top logits; the block is used up."""
    best = block.topk(top, dim=-1)
    highest = block.amax(dim=-1, keepdim=True)
    total = block.sub_(highest).exp_().sum(dim=-1)
    return highest[:, 0].double() + total.double().log(), best.values, best.indices
