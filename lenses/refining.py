"""The refinement of a tuned lens: Adam on the divergence of each depth's reading from the model's own.

The loss is KL(model's final distribution ‖ translated reading), in nats. Three things make it cheap enough
for two cores. The teacher's distribution is made once for all depths. Adam works in coordinates in which
a depth's states have unit second moments (see `moments.Start`), where every direction learns as fast. And
the head is run for some tokens only: those that the teacher finds likeliest in the batch, and a sample of
the rest in which each token stands for as many as were left out; another sample each time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from lenses import readout
from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.moments import extended, seen
from lenses.progress import Progress
from lenses.translators import size

LIKELY, SAMPLED = 3072, 1024
"""Tokens of a batch that are read for sure, and those drawn from the rest; few tokens are read whole."""

RATE = 1e-3
"""Adam's step at its largest, in coordinates of unit size."""

WARM = 10
"""Steps in which the rate grows to its largest."""

DECAY = 1e-2
"""How fast weights shrink to the identity, as a part of the rate."""

BETAS, TINY = (0.9, 0.98), 1e-8
"""How long Adam remembers the gradient and its square, and what it adds to the latter's root."""

CLIP = 1.0
"""The largest norm of a depth's gradient."""

BLOCK = 16
"""Rows whose divergence is taken at once: their logits stay in a processor's cache."""


@dataclass(frozen=True)
class Change:
    """What is added to a depth's state as the tail is to see it: (B [x; 1]) · its size."""

    matrix: Float[Tensor, "depth width more"]
    by_size: bool

    def rows(self, depth: int, state: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
        """The translated states."""
        x = seen(state, self.by_size)
        change = extended(x) @ self.matrix[depth].to(x).T
        wide = state.to(x.dtype)
        return (wide + (change * size(wide) if self.by_size else change)).to(state.dtype)


class Refiner:
    """Adam's state for all depths; `theta` is the change in coordinates of unit moments."""

    def __init__(self, decoder: Decoder, start: Change, whiten: Float[Tensor, "depth more more"]) -> None:
        self.decoder, self.by_size, self.whiten = decoder, start.by_size, whiten
        self.theta = self._coloured(start.matrix)
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.rates = torch.ones(len(self.theta))
        self.steps = 0

    def _coloured(self, matrix: Float[Tensor, "depth width more"]) -> Float[Tensor, "depth width more"]:
        return (matrix.double() @ torch.linalg.inv(self.whiten.double())).float()

    def tensors(self) -> dict[str, Tensor]:
        """All that `restore` needs to go on."""
        return {name: getattr(self, name) for name in ("theta", "first", "second", "rates")}

    def restore(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Go on from what `tensors` gave after so many steps."""
        self.steps = steps
        for name in self.tensors():
            setattr(self, name, tensors[name].clone())

    def back(self, depths: Bool[ndarray, " depth"], matrix: Float[Tensor, "depth width more"]) -> None:
        """Put some depths back to an earlier matrix, from where they go on at half their rate."""
        chosen = torch.from_numpy(depths)
        self.theta[chosen] = self._coloured(matrix)[chosen]
        self.first[chosen] = 0.0
        self.rates[chosen] /= 2

    def change(self) -> Change:
        """The translators as they are now."""
        return Change(self.theta @ self.whiten, self.by_size)

    def step(self, states: Sequence[Float[Tensor, "row width"]], part: float, seed: int) -> float:
        """One step on a batch of states at depths 0…L, after a `part` of all steps; the mean loss.

        Raises `NonFinite` where the gradient is no number.
        """
        draw = torch.Generator().manual_seed(seed * 1_000_003 + self.steps)
        gradient = torch.zeros_like(self.theta)
        rows, loss = len(states[0]), 0.0
        for chunk in _chunks(self.decoder, rows):
            loss += self._add(gradient, [state[chunk] for state in states], draw, rows)
        norms = gradient.flatten(1).norm(dim=1)
        if not norms.isfinite().all():
            raise NonFinite(
                f"the gradient at depth {int((~norms.isfinite()).nonzero()[0])} is not finite: fit a model "
                "loaded in float32"
            )
        gradient *= (CLIP / norms.clamp_min(CLIP))[:, None, None]
        self._adam(gradient, RATE * min(1.0, (self.steps + 1) / WARM) * max(0.0, 1.0 - part))
        return loss / (rows * len(self.theta))

    def _adam(self, gradient: Tensor, rate: float) -> None:
        """A step of AdamW, each depth at its own part of the rate."""
        self.steps += 1
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.lerp_(gradient.square_(), 1 - BETAS[1])
        slope, spread = (
            part / (1 - beta**self.steps) for part, beta in zip((self.first, self.second), BETAS, strict=True)
        )
        move = slope.div_(spread.sqrt_().add_(TINY)).add_(self.theta, alpha=DECAY)
        self.theta -= rate * self.rates[:, None, None] * move

    def _add(self, gradient: Tensor, states: Sequence[Tensor], draw: torch.Generator, rows: int) -> float:
        """Add a chunk's part to the gradient of the mean loss; the sum of its losses."""
        teacher = _softmax_(_logits(self.decoder, states[-1]))
        tokens, copies = some_tokens(teacher.mean(dim=0), draw)
        read = self.decoder.partly(tokens.to(self.decoder.device))
        wanted = teacher[:, tokens] * copies.exp()
        del teacher
        wanted /= wanted.sum(dim=-1, keepdim=True)
        at_once = max(1, readout.BUDGET // (8 * wanted.numel()))
        total = 0.0
        for first in range(0, len(gradient), at_once):
            depths = slice(first, min(first + at_once, len(gradient)))
            state = torch.stack([part.float() for part in states[depths]])
            x = seen(state, self.by_size)
            z = extended(x) @ self.whiten[depths].transpose(1, 2)
            scale = size(state) if self.by_size else torch.ones(())
            made = (state + scale * (z @ self.theta[depths].transpose(1, 2))).requires_grad_()
            loss, back = _backward(read, made, wanted, copies)
            gradient[depths] += (back * scale).transpose(1, 2) @ z / rows
            total += loss
        return total


def some_tokens(
    chance: Float[Tensor, " vocabulary"], draw: torch.Generator
) -> tuple[Int[Tensor, " token"], Float[Tensor, " token"]]:
    """The tokens that are read, and the logarithm of how many each of them stands for."""
    if len(chance) <= LIKELY + SAMPLED:
        return torch.arange(len(chance)), torch.zeros(len(chance))
    order = chance.topk(LIKELY).indices
    rest = torch.ones(len(chance), dtype=torch.bool)
    rest[order] = False
    others = rest.nonzero()[:, 0]
    drawn = others[torch.randperm(len(others), generator=draw)[:SAMPLED]]
    stands = torch.tensor(len(others) / SAMPLED).log()
    return torch.cat([order, drawn]), torch.cat([torch.zeros(LIKELY), stands.expand(SAMPLED)])


def _backward(
    read: Callable[[Tensor], Tensor], made: Float[Tensor, "depth row width"], wanted: Tensor, copies: Tensor
) -> tuple[float, Float[Tensor, "depth row width"]]:
    """The sum of KL(wanted ‖ reading), and its gradient for the rows; keeps the logits once."""
    with torch.enable_grad():
        flat = made.flatten(0, 1)
        logits = read(flat)
    with torch.no_grad():
        found = (logits.detach().float().cpu() + copies).log_softmax(dim=-1).unflatten(0, made.shape[:2])
        entropy = torch.special.entr(wanted).sum()
        loss = -float((wanted * found).sum()) - float(entropy) * len(made)
        slope = found.exp_().sub_(wanted).flatten(0, 1)
    (back,) = torch.autograd.grad(logits, made, slope.to(logits))
    return loss, back


def diverging(
    decoder: Decoder, held: Sequence[Float[Tensor, "row width"]], change: Change | None, text: str
) -> Generator[Progress, None, Float[ndarray, " depth"]]:
    """The mean KL at each depth from the model's own distribution, in nats, exactly and over all tokens.

    None reads the states as they are: the logit lens. Raises `NonFinite` where a reading is no number.
    """
    depths, done = len(held) - 1, 0
    total, chunks = np.zeros(depths), _chunks(decoder, len(held[0]))
    for chunk in chunks:
        own = _logits(decoder, held[-1][chunk])
        for block in own.split(BLOCK):
            block.copy_(block.log_softmax(dim=-1))
        for depth in range(depths):
            yield Progress(text, done, depths * len(chunks))
            done += 1
            rows = held[depth][chunk]
            read = _logits(decoder, rows if change is None else change.rows(depth, rows))
            total[depth] += _divergence(own, read)
    if not np.isfinite(total).all():
        raise NonFinite(
            f"the reading at depth {int((~np.isfinite(total)).argmax())} is not finite on held-out text: fit "
            "a model loaded in float32"
        )
    return total / len(held[0])


def _divergence(own: Tensor, logits: Tensor) -> float:
    """Σ over rows of KL(own ‖ softmax of the logits); `own` holds log-probabilities."""
    total = 0.0
    for one, other in zip(own.split(BLOCK), logits.split(BLOCK), strict=True):
        total += float((one.exp() * (one - other.log_softmax(dim=-1))).sum(dtype=torch.float64))
    return total


@torch.no_grad()
def _logits(decoder: Decoder, rows: Float[Tensor, "row width"]) -> Float[Tensor, "row vocabulary"]:
    """The logits of some rows in float32, on the processor that fits; by the faster kernel where proved."""
    rows = rows.to(decoder.device)
    made = decoder.fast_logits(decoder.before_head(rows)) if decoder.fast_head else decoder.readout(rows)
    return made.float().cpu()


def _softmax_(logits: Tensor) -> Tensor:
    """Probabilities in place of logits."""
    for block in logits.split(BLOCK):
        block.copy_(block.softmax(dim=-1))
    return logits


def _chunks(decoder: Decoder, rows: int) -> list[slice]:
    """Pieces of the rows, two of whose logits fit the budget of a readout."""
    at_once = readout.chunk_rows(decoder, readout.BUDGET // 2)
    return [slice(start, start + at_once) for start in range(0, rows, at_once)]
