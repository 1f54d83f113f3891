"""Whether a model has room in a device's free memory, said before it is loaded and not by a crash.

Law: the weights in the chosen number format, and `ROOM` for a prompt's states and a chunk of logits, must
fit a part of what is free (`LENSES_MEMORY`, nine tenths unless set otherwise). What is free is never
guessed: where a system doesn't tell, nothing is refused.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil
import torch
from torch import nn

from lenses import devices
from lenses.errors import BadOption, NoRoom

ROOM = 512 << 20
"""Bytes to work in, beside the weights: two chunks of logits, and the states of a batch of prompts."""

PART = 0.9
"""The part of the free memory that a model may take, by default."""

GROUP = Path("/sys/fs/cgroup")
"""Where Linux says how much memory a container may have."""


def part() -> float:
    """The part of the free memory that may be used, as `LENSES_MEMORY` has it; raises `BadOption`."""
    text = os.environ.get("LENSES_MEMORY", "").strip()
    try:
        found = float(text or PART)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise BadOption(f"the setting LENSES_MEMORY must be a number above 0 and at most 1, not {text!r}")
    return found


def refuse(name: str, weights: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise `NoRoom`, with the figures, where so many weights don't fit the device."""
    there = free(device)
    needed = weights * dtype.itemsize + ROOM
    if there is None or needed <= part() * there:
        return
    words = str(dtype).removeprefix("torch.")
    ways = ["device auto (--device auto), which also uses other devices and the disk", "a smaller model"]
    if dtype.itemsize > 2:
        ways.insert(0, "bfloat16")
    raise NoRoom(
        f"{name} needs about {_size(needed)} in {words} and {device} has {_size(there)} free, of which "
        f"{part():.0%} may be used (LENSES_MEMORY): choose {', '.join(ways[:-1])}, or {ways[-1]}",
        str(device), math.ceil(needed / part()) - there,
    )  # fmt: skip


def taken(network: nn.Module, device: torch.device) -> int:
    """Bytes of a model's weights on a device."""
    weights = [*network.parameters(), *network.buffers()]
    return sum(
        w.nbytes for w in weights if w.device.type == device.type and device.index in (None, w.device.index)
    )


def allowances() -> dict[int | str, int]:
    """Bytes of weights that each accelerator and then the CPU may take, for a model in several places."""
    found: dict[int | str, int | None] = {}
    if (kind := devices.accelerator()) is not None:
        for index in range(torch.accelerator.device_count()):
            found[index] = free(torch.device(kind.type, index))
    found["cpu"] = free(torch.device("cpu"))
    return {key: max(0, int(part() * there) - ROOM) for key, there in found.items() if there is not None}


def free(device: torch.device) -> int | None:
    """Bytes that are free on a device, counting what torch holds there unused; None where nothing tells."""
    if device.type == "cuda":
        there, _ = torch.cuda.mem_get_info(device)
        return int(there + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type == "cpu":
        left = _left_of_group()
        there = int(psutil.virtual_memory().available)  # without swapping
        return there if left is None else min(there, left)
    return None


def _left_of_group() -> int | None:
    """What a container has left of its limit; files that are only kept in memory count as free."""
    try:
        limit, used = (int((GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        counted = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(counted["inactive_file"]))
    except (OSError, ValueError, KeyError):  # not in a container, or "max": no limit
        return None


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
