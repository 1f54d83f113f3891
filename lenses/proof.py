"""The proof at load: the decoder's readouts are the model's own, and the model sees no future.

A number that can't be proved is refused with the gap in the message; it never reaches a chart.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lenses.errors import NonFinite, UnsupportedModel
from lenses.layout import Positions
from lenses.trace import Trace

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""Largest allowed difference of a probability: two kernels' rounding in that number format."""

KERNELS = 1e-5
"""How far two float32 kernels of one product may be apart: each is some 3e-6 away from float64."""

FORESIGHT = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""How far a state may move, by rounding alone, when a later token changes."""

PROBE = 8
"""Tokens in the probe; a model with fewer places gets as many as it has."""


@runtime_checkable
class Provable(Protocol):
    """What the proof needs of a `Decoder`, which calls it when it is made."""

    model: Any
    name: str
    blocks: int
    dtype: torch.dtype

    @property
    def device(self) -> torch.device: ...
    @property
    def embeddings(self) -> int: ...
    @property
    def positions(self) -> Positions: ...
    def trace(self, ids: Any) -> Trace: ...
    def resume(self, depth: int, residual: Tensor) -> Tensor: ...
    def buffer(self, rows: int) -> Tensor | None: ...
    def readout(self, rows: Tensor, out: Tensor | None = None) -> Tensor: ...
    def other_head(self, rows: Tensor) -> Tensor | None: ...
    def own(self, ids: Tensor) -> Tensor: ...


def prove(decoder: Provable) -> tuple[float, bool]:
    """The largest difference of a probability between the model and its readouts, and whether the
    faster kernel of the head's product gives the same up to rounding.

    Compares the untouched model with `resume` from the first, second, middle and last depth, with
    the readout of single rows, and with itself when only the last token changes. Raises
    `UnsupportedModel`, or `NonFinite` where the model itself gives no numbers.
    """
    ids = _probe(decoder)
    trace = decoder.trace(ids)
    own = _probabilities(decoder.own(ids))
    if not own.isfinite().all():
        raise NonFinite(
            f"{decoder.name or 'the model'} gives logits that are not finite{remedy(decoder.dtype)}"
        )
    _refuse_foresight(decoder, ids, trace)
    with torch.no_grad():
        # Every depth takes seconds on a laptop; each kind of place is enough (all are in the tests).
        depths = sorted({0, 1, decoder.blocks // 2, decoder.blocks})
        gaps = [_gap(own, decoder.resume(depth, trace[depth])) for depth in depths]
        for out in (None, decoder.buffer(len(ids))):
            gaps.append(_gap(own, decoder.readout(trace[-1], out)))
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    agree(decoder, gaps[worst], f"put back in at depth {[*depths, depths[-1], depths[-1]][worst]}")
    return gaps[worst], _kernels_agree(decoder, trace[-1])


def _kernels_agree(decoder: Provable, rows: Tensor) -> bool:
    """Whether there is another kernel for the head's product, no further off than rounding."""
    other = decoder.other_head(rows)
    return other is not None and _gap(_probabilities(decoder.readout(rows)), other) <= KERNELS


def remedy(dtype: torch.dtype) -> str:
    """What to do where numbers of this format are not finite."""
    if dtype == torch.float16:
        return " in float16: load it in bfloat16 or float32"
    if dtype == torch.bfloat16:
        return " in bfloat16: load it in float32"
    return ": its weights overflow or are damaged, so use another checkpoint"


def agree(decoder: Provable, gap: float, where: str) -> None:
    """Refuse a readout that is further from the model's own probability than rounding explains."""
    tolerance = TOLERANCE.get(decoder.dtype, 1e-6)
    if not gap <= tolerance:
        raise UnsupportedModel(
            f"a state {where} of {decoder.name or type(decoder.model).__name__} gives a probability "
            f"{gap:.2g} away from the model's own (allowed: {tolerance:.0e}); its readout can't be "
            "trusted, so nothing is shown"
        )


def _probe(decoder: Provable) -> Tensor:
    """Different ids, spread over the vocabulary: the same on every run."""
    limit = decoder.positions.tokens
    count = min(PROBE, decoder.embeddings, limit or PROBE)
    return torch.linspace(0, decoder.embeddings - 1, count, device=decoder.device).long()


def _refuse_foresight(decoder: Provable, ids: Tensor, trace: Trace) -> None:
    """Change the last token: no state before it may move."""
    if len(ids) < 2:
        return
    other = ids.clone()
    other[-1] = ids[0] if ids[-1] != ids[0] else ids[1]
    earlier, changed = (t.residual[:, :-1].float() for t in (trace, decoder.trace(other)))
    moved = float((earlier - changed).abs().max() / earlier.abs().max())
    if moved > FORESIGHT.get(decoder.dtype, 1e-5):
        raise UnsupportedModel(
            f"{decoder.name or type(decoder.model).__name__} is not a decoder-only model: changing the "
            f"last token moves the states before it by {moved:.1g} of their size, so it sees the future"
        )


def _probabilities(logits: Tensor) -> Tensor:
    return logits.detach().float().softmax(dim=-1)


def _gap(own: Float[Tensor, "position vocabulary"], logits: Tensor) -> float:
    return float((own - _probabilities(logits)).abs().max())
