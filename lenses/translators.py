"""A tuned lens's translators: what each depth's state is turned into before the model reads it.

Law: translators of zeros leave every state as it is, so that the tuned lens is then the logit lens; the last
depth has none. Source: Belrose et al. 2023, arXiv 2303.08112, whose package adds h + A h + b as we do.
Where the model's last norm takes a state's size out, ours is h + A h + rms(h) · b, a departure: sizes of
states differ a hundredfold, and a constant that fits one would drown or be lost in the other.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import BadOption
from lenses.fingerprint import fingerprint

SCHEMA = "lenses.tuned-lens/1"
TENSORS, RECORD = "tuned-lens.safetensors", "tuned-lens.json"
PUBLIC_TENSORS, PUBLIC_RECORD = "params.pt", "config.json"


@dataclass(frozen=True, eq=False)
class Translators:
    """One affine map a depth, for depths 0…L − 1; `scaled`: the constant grows with the state's size.

    `record` says what they were fitted on and how far they are from the model (`tuned-lens.json`).
    """

    weight: Float[Tensor, "depth width width"]
    bias: Float[Tensor, "depth width"]
    scaled: bool
    fingerprint: str
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return len(self.weight)

    @torch.no_grad()
    def translate(
        self, depths: list[int], states: Float[Tensor, "depth row width"]
    ) -> Float[Tensor, "depth row width"]:
        """Rows of states at some depths, as the model's own norm and head are to be given them.

        Computed in float32 at least and given back in the states' own format; depth L stays as it is.
        """
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        made = wide.clone()
        for k, depth in enumerate(depths):
            if depth == self.blocks:
                continue
            weight, bias = (part[depth].to(wide) for part in (self.weight, self.bias))
            made[k] += wide[k] @ weight.T + (size(wide[k]) * bias if self.scaled else bias)
        return made.to(states.dtype)

    def save(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        """Write `tuned-lens.safetensors` and `tuned-lens.json` into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"weight": self.weight, "bias": self.bias}
        aside = folder / f".new-{TENSORS}"
        save_file({name: part.to(dtype).cpu().contiguous() for name, part in tensors.items()}, aside)
        aside.replace(folder / TENSORS)
        known = {
            "schema": SCHEMA, "fingerprint": self.fingerprint, "scaled": self.scaled, "blocks": self.blocks,
            "width": self.bias.shape[1],
        }  # fmt: skip
        text = json.dumps({**known, **self.record}, ensure_ascii=False, allow_nan=False, indent=1)
        aside = folder / f".new-{RECORD}"
        aside.write_text(text + "\n", encoding="utf-8")
        aside.replace(folder / RECORD)


def size(states: Float[Tensor, "*row width"]) -> Float[Tensor, "*row 1"]:
    """The root mean square of each state, which RMS norms divide by."""
    return states.square().mean(dim=-1, keepdim=True).sqrt()


def load(folder: Path, decoder: Decoder) -> Translators:
    """The translators of a folder, in our format or in that of the package tuned-lens.

    Raises `BadOption` where they can't be read, and where they were fitted on another model.
    """
    if (folder / RECORD).is_file():
        return _read_own(folder, decoder)
    if (folder / PUBLIC_RECORD).is_file():
        return read_public(folder, decoder)
    raise BadOption(
        f"there is no tuned lens in {folder}: it needs {RECORD} and {TENSORS}, or {PUBLIC_RECORD} and "
        f"{PUBLIC_TENSORS} of the package tuned-lens"
    )


def _read_own(folder: Path, decoder: Decoder) -> Translators:
    record = _object(folder / RECORD)
    if record.get("schema") != SCHEMA:
        raise BadOption(f"{folder / RECORD} is no {SCHEMA}: its schema is {record.get('schema')!r}")
    try:
        with safe_open(folder / TENSORS, framework="pt") as file:
            weight, bias = file.get_tensor("weight").float(), file.get_tensor("bias").float()
    except (SafetensorError, OSError) as error:
        raise BadOption(f"{folder / TENSORS} can't be read ({error}): fit the lens again") from error
    known = str(record.get("fingerprint"))
    made = _fitting(folder, decoder, weight, bias, bool(record.get("scaled")), known, record)
    if known != fingerprint(decoder):
        raise BadOption(
            f"the tuned lens in {folder} was fitted on other weights ({record.get('model', 'unknown')}, "
            f"{known[:12]}…) than those of {decoder.name or 'this model'} "
            f"({fingerprint(decoder)[:12]}…): fit one for this model"
        )
    return made


def read_public(folder: Path, decoder: Decoder) -> Translators:
    """The translators that the package tuned-lens saved; its `params.pt` is never unpickled as code.

    Its translator i reads what enters block i: our depth i. Raises `BadOption` as `load` does.
    """
    config = _object(folder / PUBLIC_RECORD)
    path = folder / PUBLIC_TENSORS
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
        raise BadOption(
            f"{path} is not read, since it holds more than tensors or is damaged ({reason}): use a lens that "
            "the package tuned-lens saved"
        ) from error
    depths, parts = range(decoder.blocks), ["weight", "bias"] if config.get("bias", True) else ["weight"]
    expected = {f"{depth}.{part}" for depth in depths for part in parts}
    if not isinstance(state, dict) or state.keys() != expected:
        found = len(state) if isinstance(state, dict) else 0
        raise BadOption(
            f"{path} holds {found} tensors where a linear tuned lens for {decoder.blocks} blocks has "
            f"{len(expected)}: it was fitted on another model, or is no linear tuned lens"
        )
    shapes = [sorted({tuple(state[f"{depth}.{part}"].shape) for depth in depths}) for part in parts]
    if any(len(same) > 1 for same in shapes):
        raise BadOption(f"the matrices in {path} differ in shape: it is no linear tuned lens")
    made = [torch.stack([state[f"{depth}.{part}"].float() for depth in depths]) for part in parts]
    weight, bias = made if len(made) == 2 else (made[0], torch.zeros(made[0].shape[:2]))
    identity = fingerprint(decoder)  # refuses weights that are not in memory
    head = getattr(decoder.model.get_output_embeddings(), "weight", None)
    theirs = config.get("unembed_hash")
    if theirs and (not isinstance(head, Tensor) or theirs != _public_hash(head)):
        raise BadOption(
            f"the tuned lens in {folder} was fitted on another output matrix than that of "
            f"{decoder.name or 'this model'}: fit one for this model"
        )
    record = {"model": config.get("base_model_name_or_path", "unknown"), "format": "tuned-lens"}
    return _fitting(folder, decoder, weight, bias, False, identity, record)


def _public_hash(weight: Tensor) -> str:
    """The package tuned-lens's own hash of an output matrix: of how NumPy prints it."""
    values = weight.detach().cpu().float().numpy()
    with np.printoptions(threshold=1000, edgeitems=3, linewidth=75, suppress=False):
        return hashlib.sha256(np.array_str(values, precision=1).encode()).hexdigest()


def _fitting(folder: Path, decoder: Decoder, weight: Tensor, bias: Tensor, *known: Any) -> Translators:
    """The translators, unless they have another shape than the model or are no numbers.

    `known` are whether they are scaled, their fingerprint and their record.
    """
    wanted = (decoder.blocks, decoder.width)
    if weight.shape != (*wanted, decoder.width) or bias.shape != wanted:
        raise BadOption(
            f"the tuned lens in {folder} is for {weight.shape[0]} blocks of width {weight.shape[-1]}, and "
            f"{decoder.name or 'this model'} has {wanted[0]} of width {wanted[1]}: fit one for this model"
        )
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise BadOption(f"the tuned lens in {folder} holds numbers that are not finite: fit it again")
    return Translators(weight, bias, *known)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError) as error:
        raise BadOption(f"{path} can't be read ({error}): fit the lens again") from error
    return found
