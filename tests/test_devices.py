"""Where a model may run: no device is taken, offered or filled that has no float64."""

from __future__ import annotations

import pytest
import torch

import lenses
from lenses import devices, watermark
from tests import tiny

CPU = torch.device("cpu")


@pytest.fixture
def apple(monkeypatch):
    """A machine of Apple's, as PyTorch tells of it: an accelerator that makes no float64."""
    zeros = torch.zeros

    def made(*size, device=None, dtype=None, **more):
        if torch.device(device or "cpu").type != "mps":
            return zeros(*size, device=device, dtype=dtype, **more)
        if dtype == torch.float64:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support it"
            )
        return zeros(*size, dtype=dtype, **more)

    monkeypatch.setattr(torch, "zeros", made)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)


def test_an_accelerator_without_float64_is_not_the_default(apple):
    assert devices.accelerator() is None
    assert devices.named(None) == CPU
    assert set(watermark.allowances()) == {"cpu"}


def test_an_accelerator_that_has_it_is_the_default(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: CPU)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert devices.accelerator() == CPU
    assert set(watermark.allowances()) == {0, 1, "cpu"}


def test_a_device_without_float64_is_refused_with_the_reason(apple, tmp_path):
    folder = str(tiny.save("llama", tmp_path))
    with pytest.raises(
        lenses.UnknownModel, match=r"^the device mps has no float64, .* choose auto, cpu or cuda$"
    ):
        lenses.load(folder, device="mps")
    assert lenses.load(folder).device == CPU


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(lenses.UnknownModel, match=f"there is no device {name} here"):
        devices.named(name)
