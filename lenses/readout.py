"""Rows of hidden vectors → readings of a target, by the model's own tail, in bounded memory.

Law: the reading of the last residual is the model's own probability, and no chunk size changes a
reading. Rows run through `resume(L, row)` as one-token sequences; a chunk's logits fit the budget
and are normalised in place, so nothing of size rows × vocabulary is ever alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.proof import remedy
from lenses.trace import Trace

TOP = 5
"""How many of the likeliest tokens are kept beside a level."""

BUDGET = 96 << 20
"""Bytes of logits that are alive at once: 512 rows of the default model."""

SMALL, TILE = 24 << 20, 96
"""Bytes of logits in a chunk of the faster kernel, and the rows that it likes to be given at once."""

BLOCK = 16
"""Rows that a CPU normalises together: their logits stay in its cache."""

LEAST = -80.0
"""How far below the largest a logit counts as so far: e⁻⁸⁰ adds nothing, and smaller powers are slow."""

STRETCH = 256
"""Logits whose largest is found before the likeliest tokens are: they lie in the best few stretches."""


@dataclass(frozen=True)
class Readings:
    """What the rows read: one value a row in float64, and the k likeliest tokens of each row."""

    probability: Float[ndarray, " row"]
    log_probability: Float[ndarray, " row"]
    logit: Float[ndarray, " row"]
    top: Int[ndarray, "row k"]
    top_probability: Float[ndarray, "row k"]
    rank: Int[ndarray, " some"]
    """1 for the likeliest token; empty where no detail was asked for."""
    entropy: Float[ndarray, " some"]
    """Of the whole distribution, in nats; empty where no detail was asked for."""

    def at(self, rows: Any) -> Readings:
        """The readings of some rows."""
        return Readings(*(values[rows] if len(values) else values for values in vars(self).values()))


@torch.no_grad()
def read(
    decoder: Decoder,
    rows: Float[Tensor, "row width"],
    tokens: int | Int[Tensor, " row"],
    top: int = 0,
    budget: int | None = None,
    detail: bool = False,
    fast: bool = False,
) -> Readings:
    """Probability, log-probability (natural, finite where the probability underflows) and logit.

    `tokens` is the target of every row, or one for each; `top` asks for the likeliest k, `detail` for
    rank and entropy. `fast` lets another kernel do the head's product. Raises `NonFinite` where a row's
    logits are not numbers.
    """
    wanted = torch.as_tensor(tokens, device=rows.device).expand(len(rows))
    starts, logits = _chunks(decoder, rows, budget, fast)
    parts = [_reading(logits(k), wanted[k : k + starts.step], top, detail) for k in starts]
    log, logit, ids, best, rank, entropy = (np.concatenate(column) for column in zip(*parts, strict=True))
    if np.isnan(log).any():
        raise NonFinite(
            f"state {int(np.isnan(log).argmax())} of the {len(log)} that were read gives logits that are "
            f"not finite{remedy(decoder.dtype)}"
        )
    return Readings(np.exp(log), log, logit, ids, np.exp(best), rank, entropy)


def depths(decoder: Decoder, trace: Trace, position: int, token: int, detail: bool = False) -> Readings:
    """What every depth of one position reads; read once for each target.

    Kept with the trace, so that lenses that start from the same levels share one pass. A trace that
    was changed in place since then is read again.
    """
    known = trace.memo.get(decoder, {}).get(_key(trace, position, token))
    if known is None or not known.read.all() or (detail and not known.detail):
        (known,) = remember(decoder, [(trace, position, token)])
    found: Readings = known.readings
    return found


def levels(
    decoder: Decoder, trace: Trace, position: int, token: int, at: Sequence[int]
) -> Float[ndarray, " depth"]:
    """The target's probability at some depths."""
    return some(decoder, trace, position, token, at).probability


def some(
    decoder: Decoder, trace: Trace, position: int, token: int, at: Sequence[int], detail: bool = False
) -> Readings:
    """What some depths of one position read; reads all where one of them was not read before."""
    known = trace.memo.get(decoder, {}).get(_key(trace, position, token))
    if known is not None and known.read[list(at)].all() and (known.detail or not detail):
        found: Readings = known.readings.at(list(at))
        return found
    return depths(decoder, trace, position, token, detail).at(list(at))


def remember(
    decoder: Decoder,
    wanted: Sequence[tuple[Trace, int, int]],
    at: Sequence[int] | None = None,
    detail: bool = True,
) -> list[Known]:
    """Read every depth (or those of `at`) of several (trace, position, token) at once, for `depths`.

    All in one pool of rows; the last depth is read by the model's own head, since it has to give the
    model's own probability. With `detail` the likeliest `TOP` tokens, rank and entropy come too.
    """
    last = decoder.blocks
    kept = list(range(last + 1) if at is None else at)
    top = min(TOP, decoder.vocabulary) if detail else 0
    made = [Known.before(decoder, *one, top, detail) for one in wanted]
    for part in ([depth for depth in kept if depth < last], [last] if last in kept else []):
        if not part or not wanted:
            continue
        rows = torch.cat([trace.residual[part, position] for trace, position, _ in wanted])
        tokens = torch.tensor([token for _, _, token in wanted]).repeat_interleave(len(part))
        fast = part[-1] < last
        budget = BUDGET // 2 if decoder.fast_head and not fast else None  # few rows: memory counts more
        found = read(decoder, rows, tokens, top, budget, detail, fast)
        pieces = (found.at(slice(k, k + len(part))) for k in range(0, len(rows), len(part)))
        made = [known.joined(part, piece) for known, piece in zip(made, pieces, strict=True)]
    for (trace, position, token), known in zip(wanted, made, strict=True):
        trace.memo.setdefault(decoder, {})[_key(trace, position, token)] = known
    return made


@dataclass(frozen=True)
class Known:
    """The readings of one position at every depth, and which of them are there: a value, so that
    threads that read the same trace never see half of one."""

    readings: Readings
    read: Bool[ndarray, " depth"]
    detail: bool

    @classmethod
    def before(
        cls, decoder: Decoder, trace: Trace, position: int, token: int, top: int, detail: bool
    ) -> Known:
        """What is known by now, if it is known in the same detail; else nothing."""
        known = trace.memo.get(decoder, {}).get(_key(trace, position, token))
        if known is not None and known.detail == detail:
            return cast(Known, known)
        depths = trace.blocks + 1
        unread, some = np.full(depths, np.nan), depths if detail else 0
        readings = Readings(
            unread, unread, unread, np.zeros((depths, top), np.int64), np.full((depths, top), np.nan),
            np.zeros(some, np.int64), unread[:some],
        )  # fmt: skip
        return cls(readings, np.zeros(depths, bool), detail)

    def joined(self, depths: list[int], found: Readings) -> Known:
        """The same with what was found at some depths."""

        def put(old: ndarray, new: Any) -> ndarray:
            made = old.copy()
            if len(made):
                made[depths] = new
            made.setflags(write=False)
            return made

        pairs = zip(vars(self.readings).values(), vars(found).values(), strict=True)
        return Known(Readings(*(put(*pair) for pair in pairs)), put(self.read, True), self.detail)


def _key(trace: Trace, position: int, token: int) -> tuple[Any, ...]:
    return position, token, trace.residual.device, trace.residual._version


def level(decoder: Decoder, rows: Float[Tensor, "row width"], token: int) -> Float[ndarray, " row"]:
    """The probability of `token` that each row reads."""
    return read(decoder, rows, token).probability


def chunk_rows(decoder: Decoder, budget: int | None = None) -> int:
    """How many rows' logits fit the budget (`BUDGET` by default)."""
    return max(1, (budget or BUDGET) // (4 * decoder.vocabulary))


def _chunks(
    decoder: Decoder, rows: Tensor, budget: int | None, fast: bool
) -> tuple[range, Callable[[int], Tensor]]:
    """Where chunks start, and what makes the logits of one: they live no longer than they are read."""
    size = min(chunk_rows(decoder, budget), len(rows))
    if fast and decoder.fast_head:
        # Of many at once, in multiples of the rows of oneDNN's own tiles.
        size = min(size, max(TILE, SMALL // (4 * decoder.vocabulary) // TILE * TILE))
        given = decoder.before_head(rows)
        return range(0, len(rows), size), lambda start: decoder.fast_logits(given[start : start + size])
    buffer = decoder.buffer(size)

    def logits(start: int) -> Tensor:
        chunk = rows[start : start + size]
        return decoder.readout(chunk, None if buffer is None else buffer[: len(chunk)])

    return range(0, len(rows), size), logits


def _reading(logits: Tensor, tokens: Tensor, top: int, detail: bool) -> tuple[ndarray, ...]:
    """Log-probability, logit, the top tokens with theirs, rank, entropy; overwrites float32 logits.

    The normaliser is summed by ourselves: PyTorch's CPU kernels of softmax and log_softmax use an
    exponential of 20 units in the last place, which put 1.8e-5 of error into a probability.
    """
    logit = logits.gather(1, tokens[:, None])
    values = logits.float()
    # Rows are worked off in blocks that stay in a CPU's cache; an accelerator takes many at once.
    size = BLOCK if values.device.type == "cpu" else max(1, len(values) // 4)
    room = torch.empty_like(values[:size]) if detail else values[:0]
    parts = [
        _normaliser(block, own.float(), top, room[: len(block)] if detail else None)
        for block, own in zip(values.split(size), logit.split(size), strict=True)
    ]
    normaliser, best, ids, rank, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
    exact = logit[:, 0].double()
    log, top_log = exact - normaliser, best.double() - normaliser[:, None]
    return tuple(part.cpu().numpy() for part in (log, exact, ids, top_log, rank, entropy))


def _normaliser(
    block: Tensor, logit: Tensor, top: int, room: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log Σ exp of each row in float64, its top logits, rank and entropy; the block is used up."""
    best, ids = likeliest(block, top)
    highest = best[:, :1] if top else block.amax(dim=-1, keepdim=True)
    if room is None:
        total = block.sub_(highest).clamp_(min=LEAST).exp_().sum(dim=-1).double()
        nothing = total[:0]
        return highest[:, 0].double() + total.log(), best, ids, nothing.long(), nothing
    rank = 1 + torch.gt(block, logit, out=room).sum(dim=-1).long()
    block.sub_(highest).clamp_(min=LEAST)
    total = torch.exp(block, out=room).sum(dim=-1).double()
    entropy = total.log() - block.mul_(room).sum(dim=-1).double() / total
    return highest[:, 0].double() + total.log(), best, ids, rank, entropy


def likeliest(logits: Float[Tensor, "row vocabulary"], top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest logits of each row and their ids, the largest first.

    Each of them lies in one of the `top` stretches with the largest maxima, so only these are sorted.
    """
    whole = logits.shape[1] // STRETCH
    if not top or whole <= 2 * top:
        best = logits.topk(top, dim=-1)
        return best.values, best.indices
    main, rest = logits[:, : whole * STRETCH], logits[:, whole * STRETCH :]
    stretches = main.unflatten(1, (whole, STRETCH)).amax(dim=-1).topk(top, dim=-1).indices
    inside = torch.arange(STRETCH, device=logits.device)
    ids = (stretches[:, :, None] * STRETCH + inside).flatten(1)
    after = torch.arange(whole * STRETCH, logits.shape[1], device=logits.device)
    ids = torch.cat([ids, after.expand(len(rest), -1)], dim=1)
    best = logits.gather(1, ids).topk(top, dim=-1)
    return best.values, ids.gather(1, best.indices)
