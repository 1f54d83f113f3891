"""Where a model may run: devices that have float64, in which probabilities and ledgers are kept.

Law: what a device can do is tried, not looked up by its name. Apple's (`mps`) has no float64, so that
the CPU is taken there.
"""

from __future__ import annotations

import torch

from lenses.errors import UnknownModel

CHOICES = "choose auto, cpu or cuda"


def named(name: str | None) -> torch.device | None:
    """The device of that name, by default the accelerator or else the CPU; None for `auto`: as many as
    it takes.

    Raises `UnknownModel` for a device that is not there or has no float64.
    """
    if name == "auto":
        return None
    if name is None:
        return accelerator() or torch.device("cpu")
    try:
        torch.zeros(1, device=name).item()  # a meta tensor can be made, but holds nothing
        place = torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UnknownModel(f"there is no device {name} here: {CHOICES}") from error
    if not _exact(place):
        raise UnknownModel(
            f"the device {name} has no float64, in which probabilities and ledgers are kept: {CHOICES}"
        )
    return place


def accelerator() -> torch.device | None:
    """This machine's kind of accelerator; None where there is none that has float64."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return found if found is not None and _exact(found) else None


def _exact(device: torch.device) -> bool:
    try:
        return torch.zeros(1, device=device, dtype=torch.float64).item() == 0
    except (TypeError, RuntimeError):  # of MPS and of others, in this order
        return False
