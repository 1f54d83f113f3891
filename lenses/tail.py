"""The model's tail: what it makes of its last state, by its own norm, head, scale and softcap.

The head's product alone may be done into memory that is there already, where the head is nothing but a
matrix product, and on request by a faster kernel; the proof at load takes these ways too.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lenses import dispatched
from lenses.errors import UnsupportedLens
from lenses.slopes import Slopes
from lenses.twin import Step, twin


class Tail(Slopes):
    """Rows of final residual vectors → logits, in one pass or in two halves with the head between.

    `fast_head`: another kernel may do the head's product (see `proof.prove`).
    """

    fast_head: bool

    def buffer(self, rows: int) -> Float[Tensor, "row vocabulary"] | None:
        """Memory that `readout` can write logits into, or None where the head is no plain product."""
        head = self._plain_head()
        return None if head is None else head.weight.new_empty(rows, len(head.weight))

    @torch.no_grad()
    def other_head(self, rows: Float[Tensor, "row width"]) -> Float[Tensor, "row vocabulary"] | None:
        """What `fast_logits` makes of some rows, where there is another kernel at all and the model
        returns what its head gives (no scale and no softcap comes after)."""
        head = self._plain_head()
        if head is None or not other_exists(head):
            return None
        given = self.before_head(rows)
        if not torch.equal(head(given[:, None])[:, 0], self.readout(rows)):
            return None
        return other_product(head, given)

    @torch.no_grad()
    def readout(
        self, rows: Float[Tensor, "row width"], out: Float[Tensor, "row vocabulary"] | None = None
    ) -> Float[Tensor, "row vocabulary"]:
        """The logits of final residual vectors; the head's product lands in `out` if given."""
        more: dict[str, Step] = {} if out is None else {str(self._layout.head): _into(out)}
        return self._resume(self.blocks, rows[:, None], None, more)[:, 0]

    @torch.no_grad()
    def fast_logits(self, given: Float[Tensor, "row head"]) -> Float[Tensor, "row vocabulary"]:
        """The logits of what the head is given, its product by another kernel (`fast_head` only).

        Its roundings are not the model's own, though no worse.
        """
        return other_product(self.model.get_submodule(str(self._layout.head)), given)

    def partly(
        self, tokens: Int[Tensor, " token"]
    ) -> Callable[[Float[Tensor, "row width"]], Float[Tensor, "row token"]]:
        """What makes the logits of some tokens alone out of final residual vectors; differentiable.

        The head's product is done for these tokens only, where the model takes that without any other
        logit; otherwise all are made and the rest is left out.
        """

        def whole(rows: Tensor) -> Tensor:
            return self.resume(self.blocks, rows[:, None])[:, 0][:, tokens]

        head = self._plain_head()
        if head is None or len(tokens) == self.vocabulary:
            return whole
        weight = head.weight.detach()[tokens]
        bias = None if head.bias is None else head.bias.detach()[tokens]

        def step(_: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Tensor:
            return nn.functional.linear(hidden, weight, bias)

        def part(rows: Tensor) -> Tensor:
            return self._resume(self.blocks, rows[:, None], None, {str(self._layout.head): step})[:, 0]

        with torch.no_grad():
            probe = torch.linspace(-1, 1, self.width, device=weight.device, dtype=self.dtype)[None]
            expected, found = whole(probe), part(probe)
        same = found.shape == expected.shape and torch.allclose(found, expected, 1e-4, 1e-4)
        return part if same else whole

    @torch.no_grad()
    def before_head(self, rows: Float[Tensor, "row width"]) -> Float[Tensor, "row head"]:
        """What the head is given for final residual vectors: after the model's own norm and so on.

        Raises `UnsupportedLens` for a model whose logits do not come from one head module.
        """
        seen: list[Tensor] = []

        def tap(head: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Tensor:
            seen.append(hidden.clone())
            return hidden  # nobody reads these logits, so the product is left out

        if self._layout.head is not None:
            self._resume(self.blocks, rows[:, None], None, {self._layout.head: tap})
        if not seen:
            raise UnsupportedLens(f"{type(self.model).__name__} calls no output head of its own")
        return seen[0].reshape(len(rows), -1).to(rows.device)

    @torch.no_grad()
    def after_head(self, given: Float[Tensor, "row head"]) -> Float[Tensor, "row vocabulary"]:
        """The logits that the model makes of what its head is given: `readout`'s second half."""

        def step(head: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            return head(given[:, None], *args, **kwargs)

        blank = given.new_zeros(len(given), 1, self.width, dtype=self.dtype)
        return self._resume(self.blocks, blank, None, {str(self._layout.head): step})[:, 0]

    @torch.no_grad()
    def own_before_head(
        self, ids: Int[Tensor, " position"], positions: Sequence[int]
    ) -> tuple[Float[Tensor, "position head"], Float[Tensor, "kept vocabulary"]] | None:
        """The untouched model's pass: what its head is given everywhere, and its logits at `positions`.

        None where that can't be told apart: no head module, or one that is called in another way.
        """
        seen: list[Tensor] = []

        def tap(head: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            seen.append(hidden)
            return head(hidden[:, list(positions)] if hidden.ndim == 3 else hidden, *args, **kwargs)

        if self._layout.head is None:
            return None
        logits = self._forward(twin(self.model, {self._layout.head: tap}), ids[None], None)
        if len(seen) != 1 or seen[0].shape[:-1] != (1, len(ids)):
            return None
        return seen[0][0].to(self.device), logits[0]

    @torch.no_grad()
    def head(self, rows: Float[Tensor, "row head"], token: int) -> Float[Tensor, " row"]:
        """A token's raw logit, before any scale or softcap: the head module's own output."""
        if (head := self._plain_head()) is not None:
            bias = None if head.bias is None else head.bias[token : token + 1]
            return nn.functional.linear(rows.to(self.dtype), head.weight[token : token + 1], bias)[:, 0]
        with self._turn:
            found: Tensor = self.model.get_output_embeddings()(rows.to(self.dtype))[:, token]
        return dispatched.number(found, self._named).to(rows.device)

    def _plain_head(self) -> nn.Linear | None:
        """The head, where it is exactly a matrix product that nothing else listens to."""
        if self._layout.head is None:
            return None
        head = self.model.get_submodule(self._layout.head)
        plain = (
            type(head) is nn.Linear
            and "forward" not in head.__dict__
            and not (head._forward_hooks or head._forward_pre_hooks)
            and (head.weight.dtype == torch.float32 or head.weight.device.type == "cuda")
            and head.weight.device.type != "meta"
        )
        return head if plain else None


def _into(out: Tensor) -> Step:
    """A head's step that leaves its product in `out`."""

    def step(head: Any, hidden: Tensor, args: Any, kwargs: Any) -> Tensor:
        return own_product(head, hidden.flatten(0, -2), out).reshape(*hidden.shape[:-1], -1)

    return step


def own_product(head: nn.Linear, rows: Tensor, out: Tensor) -> Tensor:
    """The head's product by PyTorch, in `out`."""
    weight = head.weight.detach()
    if head.bias is None:
        return torch.mm(rows, weight.t(), out=out)
    return torch.addmm(head.bias.detach(), rows, weight.t(), out=out)


def other_product(head: nn.Linear, rows: Tensor) -> Tensor:
    """The same by oneDNN, which PyTorch ships with and does not use for float32.

    On processors that are not Intel's it is up to three times as fast as the MKL that PyTorch uses.
    Both are some 1e-5 of a logit away from float64, each in its own direction.
    """
    bias = None if head.bias is None else head.bias.detach()
    return torch.ops.mkldnn._linear_pointwise(rows, head.weight.detach(), bias, "none", [], "")


def other_exists(head: nn.Linear) -> bool:
    """Whether `other_product` can be called here for this head, and may be the faster one."""
    return (
        head.weight.device.type == "cpu"
        and head.weight.dtype == torch.float32
        and platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
