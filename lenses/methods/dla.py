r"""Direct logit attribution: what each part of the last state adds to the target's logit.

Law: parts + constant = the head's raw logit, before any scale or softcap; of a word of several tokens
the sum of theirs, and against another word the difference. The final norm's statistics are frozen at the
last state. Source: Elhage et al., "A Mathematical Framework for Transformer
Circuits" (2021).

No norm is re-implemented and none is looked up by name. Let T be what the model does between the
last block and the head. Where T is a norm it has the form T(x) = A x / s(x) + c, with s the root mean
square of x (or of x less its mean), whatever its weight (w or 1 + w), bias or projection. Then
A x / s(h_L) = (T(k x) − c) · s(x) / s(h_L) for any factor k, so that T itself, called on each part
made large enough for the norm's epsilon to vanish, gives that part's contribution. Where T is affine
(OPT-350m, or no norm at all) it is called on the part as it is. What is neither is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lenses.attribution import Attribution, Claim, Unit
from lenses.errors import NonFinite, UnsupportedLens
from lenses.lens import Card, Options, option
from lenses.readouts import AGAINST

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace
    from lenses.words import Place

LOUD = 64.0
"""Root mean square at which a part is shown to the norm: its epsilon (≤ 1e-5) is then < 3e-9 of it."""


@dataclass(frozen=True)
class DLA(Options):
    """Parts of the target's raw logit: the embedding's, each block's, and a constant."""

    name: ClassVar[str] = "dla"
    title: ClassVar[str] = "Direct logit attribution"
    claim: ClassVar[Claim] = Claim.ACROSS
    source: ClassVar[str] = "Elhage et al. 2021, “A Mathematical Framework for Transformer Circuits”"
    card: ClassVar[Card] = Card(
        measures="What the embedding and each block add directly to the target's logit, with the "
        "final norm's statistics frozen.",
        formula=r"c_b = w_t^\top \frac{A\,(h_{b+1} - h_b)}{s(h_L)}, \qquad "
        r"c_{\mathrm{emb}} + \sum_b c_b + \mathrm{constant} = \mathrm{logit}_t",
        adds_up="The parts and the constant (norm and head bias) sum to the raw logit, to float32. "
        "They do not sum to a probability: the softmax comes after.",
        cost="One forward pass and one head product a depth.",
        caveats="In logits, before softcap, scale and softmax: a block that raises every logit alike "
        "scores high and changes nothing. Freezing the norm hides how blocks change its scale.",
    )

    readout: Literal["logit", "difference", "log-odds"] = option(
        "logit",
        "the target's logit, or (difference, log-odds) how far it is above that of another word",
        live=True,
        shared=True,
    )
    against: str = option(
        "", "the other word, for difference and log-odds", when=("readout", *AGAINST), live=True, shared=True,
        word=True,
    )  # fmt: skip
    halves: bool = option(False, "also each block's attention and MLP by themselves, where it has them")

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        import torch

        from lenses.measure import measure

        # The target's own tokens count for it, those of the word that it is held against do not.
        f = measure(decoder, trace, target, self.readout, self.against)
        own = len(target.tokens)
        parts = [_parts(decoder, place, self.halves) for place in f.places]
        signs = np.where(np.arange(len(parts)) < own, 1.0, -1.0)
        values, halves, end, constant = (
            sum(sign * part for sign, part in zip(signs, column, strict=True))
            for column in zip(*parts, strict=True)
        )
        pieces = np.stack([part[0] for part in parts[:own]], axis=1)
        return Attribution(
            self.name, self.options, Unit.LOGIT, self.claim, np.arange(len(values)), values, start=0.0,
            end=float(end), constant=float(constant), halves=halves if self.halves else None,
            pieces=pieces if own > 1 and self.readout == "logit" else None,
            precision=float(torch.finfo(decoder.dtype).eps) * len(parts),
        )  # fmt: skip


def _parts(
    decoder: Decoder, place: Place, split: bool
) -> tuple[Float[ndarray, " depth"], Float[ndarray, "depth 2"], float, float]:
    """What each depth adds to one token's logit, the same by attention and MLP (NaN unless `split`), the
    logit and the constant."""
    import torch

    states = place.trace.residual[:, place.position]
    parts = torch.cat([states[:1], states.diff(dim=0)])
    halves, known = _added(decoder, place) if split else (parts[:0], [])
    given, whole, constant = _frozen(decoder, states[-1], torch.cat([parts, halves]))
    if not _close(given[: len(parts)].sum(dim=0), whole - constant, _tolerance(decoder)):
        raise UnsupportedLens(
            "DLA is not available for this model: what stands between its last block and its head is "
            "neither affine nor a norm whose statistics can be frozen"
        )
    rows = torch.cat([given, torch.stack([constant, torch.zeros_like(constant), whole])])
    logits = decoder.head(rows.to(decoder.dtype), place.token).double().cpu().numpy()
    if not np.isfinite(logits).all():
        raise NonFinite(
            f"the head's logit of token {place.token} is {logits[-1]}, which has no parts: the "
            "head's bias rules this token out"
        )
    values, found = np.split(logits[:-3] - logits[-2], [len(parts)])
    return values, _placed(found, known, len(parts)), float(logits[-1]), float(logits[-3])


def _added(decoder: Decoder, place: Place) -> tuple[Float[Tensor, "half width"], list[int]]:
    """What attention and MLP add in each block that has them, in turn, and which blocks these are."""
    from lenses import halves

    middle = halves.middle(decoder, place.trace)
    added = halves.added(middle, place.trace.residual[:, place.position], place.position)
    return added[middle.known].flatten(0, 1), middle.known


def _placed(found: Float[ndarray, " half"], known: list[int], count: int) -> Float[ndarray, "depth 2"]:
    """The halves at the depths after their blocks, of `count` depths; NaN where there are none."""
    placed = np.full((count, 2), np.nan)
    placed[[block + 1 for block in known]] = found.reshape(-1, 2)
    return placed


def _frozen(
    decoder: Decoder, last: Float[Tensor, " width"], parts: Float[Tensor, "part width"]
) -> tuple[Float[Tensor, "part head"], Float[Tensor, " head"], Float[Tensor, " head"]]:
    """What the head is given for each part with the norm frozen at `last`, for `last` itself, and its
    constant."""
    import torch

    def tail(rows: Tensor) -> Tensor:
        return decoder.before_head(rows.to(decoder.dtype)).double()

    tolerance = _tolerance(decoder)
    shifted = last + last.float().square().mean().sqrt().to(last.dtype)
    zero, once, twice, moved = tail(torch.stack([torch.zeros_like(last), last, 2 * last, shifted]))
    if _close(twice - zero, 2 * (once - zero), tolerance):
        return tail(parts) - zero, once, zero
    rows = torch.cat([last[None], parts]).double()
    if _close(moved, once, tolerance):  # a norm that takes the mean out first
        rows = rows - rows.mean(dim=-1, keepdim=True)
    sizes = rows.square().mean(dim=-1, keepdim=True).sqrt()
    loud = (tail(rows * (LOUD / sizes.clamp_min(1e-30))) - zero) * sizes
    # s(h_L), epsilon and all, from what the model itself makes of h_L (least squares).
    size = (loud[0] @ (once - zero)) / (once - zero).square().sum()
    return loud[1:] / size, once, zero


def _tolerance(decoder: Decoder) -> float:
    import torch

    return 1e3 * float(torch.finfo(decoder.dtype).eps)


def _close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())
