"""Heads and embeddings that are no plain matrices: called, never read, or refused with a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import lenses
from lenses import readout
from lenses.decoder import Decoder
from lenses.errors import UnsupportedLens
from tests import numbers, tiny

FAMILIES = ("llama", "gpt2", "gemma2", "mixtral", "phi", "cohere")


class Sealed(nn.Module):
    """A module that runs another and shows none of its weights."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.__dict__["inner"] = inner

    @property
    def weight(self):
        raise RuntimeError("these weights are packed: nobody can read them")

    bias = weight

    def forward(self, given):
        return self.inner(given)


class Quantised(nn.Module):
    """A linear module of 8-bit rows, for reading only: no gradient goes through it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.scale = weight.abs().amax(dim=1, keepdim=True) / 127
        self.rows, self.offset = (weight / self.scale).round().to(torch.int8), linear.bias

    @torch.no_grad()
    def forward(self, given):
        return nn.functional.linear(given, self.rows * self.scale, self.offset)


def sealed(family: str) -> nn.Module:
    model = tiny.model(family)
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(Sealed(model.get_output_embeddings()))
    model.set_input_embeddings(Sealed(model.get_input_embeddings()))
    return model


def quantised(where: str) -> nn.Module:
    """A llama with one kind of its linear modules quantised."""
    model = tiny.model("llama")
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and where in path:
            home, _, name = path.rpartition(".")
            setattr(model.get_submodule(home), name, Quantised(module))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_and_an_embedding_that_cannot_be_read_give_the_numbers_of_plain_ones(family):
    decoder, plain = Decoder(sealed(family), tiny.tokenizer(), family), tiny.decoder(family)
    assert decoder.buffer(4) is None
    assert not decoder.fast_head
    expected = numbers.exact(plain)
    for name, found in numbers.exact(decoder).items():
        assert torch.equal(found, expected[name]), name
    others = numbers.everything(plain)
    for name, found in numbers.everything(decoder).items():
        assert numbers.apart(found, others[name]) < 2e-5, name


def test_some_tokens_of_a_sealed_head_are_those_of_all():
    decoder = Decoder(sealed("llama"), tiny.tokenizer(), "llama")
    rows, tokens = decoder.trace(tiny.IDS)[-1], torch.tensor([3, 41])
    assert torch.equal(decoder.partly(tokens)(rows), decoder.readout(rows)[:, tokens])


@pytest.mark.parametrize("where", ["lm_head", "down_proj", "q_proj"])
def test_a_module_that_no_gradient_goes_through_is_read_and_refused_for_gradients(where):
    decoder = Decoder(quantised(where), tiny.tokenizer(), "packed")
    found = numbers.passes(decoder) | numbers.lenses(decoder)
    for name, make in found.items():
        if not name.startswith(numbers.SLOPES):
            assert np.isfinite(make()).all(), name
        elif name.startswith("ig-lens") and where != "lm_head":
            assert np.isfinite(make()).all(), name  # its gradients are those of the tail alone
        else:
            with pytest.raises(UnsupportedLens, match=f"none goes through .*{where} of packed"):
                make()
    assert all(where in path for path in decoder.cuts)
    own = decoder.own(tiny.IDS).double().softmax(-1)[:, tiny.TARGET]
    assert readout.level(decoder, decoder.trace(tiny.IDS)[-1], tiny.TARGET) == pytest.approx(own, abs=1e-6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_gradients_go_through_every_module_of_a_plain_model(family):
    assert tiny.decoder(family).cuts == ()


def test_what_pytorch_quantises_by_itself_is_refused_since_products_depend_on_all_their_rows():
    with pytest.warns(DeprecationWarning, match="quantiz"):
        made = torch.ao.quantization.quantize_dynamic(tiny.model("llama"), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(lenses.UnsupportedModel, match="moves the states before it"):
        Decoder(made.eval(), tiny.tokenizer(), "packed")
