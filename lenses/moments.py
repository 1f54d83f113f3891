"""The closed form of a tuned lens: the ridge regression of the final state on a depth's state.

Both are divided by their size where the model's last norm does that anyway. Everything comes from second
moments that are streamed over the corpus in float64, so that no state is kept: at each depth the matrix
B with y − x ≈ B [x; 1] that minimises the squared error plus a ridge on B, which pulls to the identity.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenses.decoder import Decoder
from lenses.progress import Progress
from lenses.translators import size

BATCH = 4
"""Windows in one pass of the model."""

MEMORY = 1 << 30
"""Bytes of moments that are alive at once; a wide model's depths are done in groups, a pass each."""

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Parts of the states' mean square; at each depth the one with the least error on held-out text is taken."""


@dataclass(frozen=True)
class Start:
    """The closed form at depths 0…L − 1, and the coordinates in which states have unit moments."""

    closed: Float[Tensor, "depth width more"]
    whiten: Float[Tensor, "depth more more"]
    """P with P M Pᵀ = 1, where M is the mean of [x; 1] [x; 1]ᵀ and its ridge."""


@torch.no_grad()
def states(decoder: Decoder, ids: Int[Tensor, "window position"]) -> list[Float[Tensor, "row width"]]:
    """The states at depths 0…L of every position of some windows but the first."""
    found, _ = decoder.flow(ids.to(decoder.device), [0])
    return [state[:, 1:].flatten(0, 1).cpu() for state in found]


def scaled(decoder: Decoder, rows: Float[Tensor, "row width"]) -> bool:
    """Whether the model's tail takes out the size of its last state, as a last norm does."""
    with torch.no_grad():
        one, two = (decoder.readout(part).float().softmax(dim=-1) for part in (rows, 2 * rows))
    return bool((one - two).abs().max() < 1e-2)


def seen(state: Float[Tensor, "*row width"], by_size: bool) -> Float[Tensor, "*row width"]:
    """A state as the regression sees it, in float32 at least."""
    wide = state.to(torch.promote_types(state.dtype, torch.float32))
    return wide / size(wide).clamp_min(torch.finfo(wide.dtype).tiny) if by_size else wide


def extended(x: Float[Tensor, "*row width"]) -> Float[Tensor, "*row more"]:
    """[x; 1]."""
    return torch.nn.functional.pad(x, (0, 1), value=1.0)


def starting(
    decoder: Decoder, windows: Int[Tensor, "window position"], held: list[Tensor], by_size: bool
) -> Generator[Progress, None, Start]:
    """The closed form of every depth from these windows; `held` are the states of held-out text."""
    more = decoder.width + 1
    at_once = max(1, MEMORY // (16 * more * more))
    closed = torch.empty(decoder.blocks, decoder.width, more)
    whiten = torch.empty(decoder.blocks, more, more)
    for first in range(0, decoder.blocks, at_once):
        depths = range(first, min(first + at_once, decoder.blocks))
        inner, cross = yield from _streamed(decoder, windows, depths, by_size)
        for k, depth in enumerate(depths):
            yield Progress("solving for the closed form", depth, decoder.blocks)
            closed[depth], whiten[depth] = _solved(
                inner[k], cross[k], seen(held[depth], by_size), seen(held[-1], by_size)
            )
    return Start(closed, whiten)


def _streamed(
    decoder: Decoder, windows: Int[Tensor, "window position"], depths: range, by_size: bool
) -> Generator[Progress, None, tuple[Tensor, Tensor]]:
    """The means of [x; 1] [x; 1]ᵀ and (y − x) [x; 1]ᵀ at some depths, in float64."""
    more = decoder.width + 1
    inner = torch.zeros(len(depths), more, more, dtype=torch.float64)
    cross = torch.zeros(len(depths), decoder.width, more, dtype=torch.float64)
    rows = 0
    for start in range(0, len(windows), BATCH):
        text = f"closed form of depths {depths[0]} to {depths[-1]}: windows of text"
        yield Progress(text, start, len(windows))
        found = states(decoder, windows[start : start + BATCH])
        y = seen(found[-1], by_size)
        for k, depth in enumerate(depths):
            x = seen(found[depth], by_size)
            z = extended(x)
            inner[k] += z.T @ z
            cross[k] += (y - x).T @ z
        rows += len(y)
    return inner / rows, cross / rows


def _solved(inner: Tensor, cross: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """B and P at one depth, with the ridge whose B is nearest to the held-out y."""
    width = len(cross)
    each = inner.diagonal()[:width].mean()
    tried = []
    for part in RIDGES:
        ridge = torch.eye(width + 1, dtype=torch.float64) * part * each
        ridge[-1, -1] = 0  # the constant is free
        b = torch.linalg.solve(inner + ridge, cross.T).T.to(x.dtype)
        error = float((x + extended(x) @ b.T - y).square().mean())
        tried.append((error, b, inner + ridge))
    _, b, moments = min(tried, key=lambda one: one[0])
    root = torch.linalg.cholesky(moments)
    inverse = torch.linalg.solve_triangular(root, torch.eye(width + 1, dtype=torch.float64), upper=False)
    return b.float(), inverse.float()
