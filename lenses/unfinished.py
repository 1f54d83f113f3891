"""What a fit that was stopped leaves in its folder, so that it goes on: one safetensors file.

It holds Adam's state, the closed form and the best translators so far; its header says of which model and
corpus. The order of the text follows from the seed and the number of steps, so nothing is fitted on twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lenses.errors import BadRun
from lenses.translators import RECORD

NAME = "unfinished.safetensors"


def begin(folder: Path, resume: bool, settings: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and numbers of the fit that a folder holds; nothing for a new one.

    Raises `BadRun` for a folder that holds a lens, or a fit unless `resume` is given, and for a fit of
    other settings, which are named.
    """
    if (folder / RECORD).exists():
        raise BadRun(f"{folder} holds a tuned lens already: choose another folder, or remove it")
    path = folder / NAME
    if not path.exists():
        return {}, {}
    if not resume:
        raise BadRun(
            f"{folder} holds a fit that was stopped: add --resume to go on with it, or choose another folder"
        )
    try:
        with safe_open(path, framework="pt") as file:
            known = json.loads(file.metadata()["known"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        differ = [name for name, value in settings.items() if known["settings"].get(name) != value]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadRun(f"{path} can't be read ({error}): choose another folder") from error
    if differ:
        raise BadRun(
            f"{folder} holds a fit that can't be gone on with, because its {' and '.join(differ)} was "
            "another: choose another folder"
        )
    return tensors, known


def keep(folder: Path, tensors: dict[str, Tensor], known: dict[str, Any]) -> None:
    """Write all that `begin` gives back, in one go."""
    aside = folder / f".new-{NAME}"
    contiguous = {name: part.detach().contiguous().to(torch.float32) for name, part in tensors.items()}
    save_file(contiguous, aside, {"known": json.dumps(known)})
    aside.replace(folder / NAME)


def end(folder: Path) -> None:
    """Nothing is left to go on with."""
    (folder / NAME).unlink(missing_ok=True)
