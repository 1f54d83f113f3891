"""A model's name → a `Decoder`: safetensors or GGUF only, no remote code, nothing invented.

What is refused, with the reason: a pickle checkpoint, a model that brings code of its own, an
encoder–decoder, weights that are missing from the checkpoint, and whatever `proof` refuses.
"""

from __future__ import annotations

import hashlib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lenses import catalog, convert
from lenses.decoder import Decoder
from lenses.errors import UnknownModel, UnsupportedModel
from lenses.fetch import Progress

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
HASHED = 1 << 30
"""Bytes of a local folder's weights up to which its revision is their hash."""

_loading = threading.Lock()  # transformers patches torch's initialisers while it builds a model


def load(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Decoder:
    """The decoder of a catalog name, a Hub id, a local folder or a `.gguf` file.

    `dtype` (float32 unless said otherwise) and `device` (an accelerator where there is one) are
    torch's names. Raises `UnknownModel` and `UnsupportedModel`.
    """
    steps = loading(model, revision=revision, dtype=dtype, device=device)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            decoder: Decoder = end.value
            return decoder


def loading(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Generator[Progress, None, Decoder]:
    """`load`, with its progress: yields each step and returns the decoder."""
    source = catalog.find(model)
    if source.wheel or source.gguf:
        yield from convert.prepare(source)
        folder = convert.converted(source)
        where, (name, version) = _Where(str(folder)), convert.origin(folder)
    elif source.folder:
        _refuse_pickle(source.folder)
        where, name = _Where(str(source.folder)), f"folder:{source.name}"
        version = _digest(source.folder)
    else:
        hub = str(source.hub)
        yield Progress(f"asking the Hugging Face Hub for {hub}")
        where = _Where(hub, revision, source.gated, local=not _reachable())
        name, version = f"hub:{hub}", ""
    yield Progress(f"loading {source.name}")
    with _loading:
        network, tokenizer, commit = _read(where, _dtype(dtype))
    network.requires_grad_(False).eval().to(_device(device))
    yield Progress(f"proving the readout of {source.name}")
    return Decoder(network, tokenizer, source.name, name, version or commit)


@dataclass(frozen=True)
class _Where:
    """A folder or Hub id as transformers takes it."""

    path: str
    revision: str | None = None
    gated: bool = False
    local: bool = True

    def __call__(self) -> dict[str, Any]:
        return {
            "pretrained_model_name_or_path": self.path,
            "trust_remote_code": False,
            "local_files_only": self.local,
            **({} if self.revision is None else {"revision": self.revision}),
        }


def _read(where: _Where, dtype: torch.dtype) -> tuple[Any, Any, str]:
    """The network, its tokenizer, and the Hub's commit ("" for a folder)."""
    from transformers import AutoConfig

    try:
        with convert.without_bars():
            config = AutoConfig.from_pretrained(**where())
            auto = _auto_class(config, where.path)
            network, report = auto.from_pretrained(
                **where(), config=config, dtype=dtype, use_safetensors=True, output_loading_info=True
            )
    except UnsupportedModel:
        raise
    except Exception as error:
        # Transformers, the Hub's client and tokenizers raise whatever a folder brings them to.
        raise UnknownModel(_why(where, error)) from error
    tokenizer = _tokenizer(where)
    missing = sorted(report["missing_keys"]) + sorted(str(k) for k in report["mismatched_keys"])
    if missing:
        raise UnsupportedModel(
            f"the checkpoint of {where.path} lacks weights that transformers would make "
            f"up ({', '.join(missing[:3])}{', …' * (len(missing) > 3)}): use one with its head"
        )
    return network, tokenizer, str(getattr(config, "_commit_hash", None) or "")


def _tokenizer(where: _Where) -> Any:
    from transformers import AutoTokenizer

    try:
        with convert.without_bars():
            return AutoTokenizer.from_pretrained(**where())
    except Exception as error:
        # As above: the reason is for the user, whatever raised it.
        raise UnknownModel(
            f"the tokenizer of {where.path} can't be read, so no prompt can be: add tokenizer.json and "
            f"tokenizer_config.json ({' '.join(str(error).split())[:120]})"
        ) from error


def _reachable() -> bool:
    """Whether the Hub answers at all; where it does not, its cache is used without minutes of retries."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=10)
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, TimeoutError) as error:
        # It answered, if in a way that its own client has to judge.
        return isinstance(getattr(error, "reason", None), ssl.SSLError)
    return True


def _auto_class(config: Any, path: str) -> Any:
    """The class that builds a language model of this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import modeling_auto as known

    kind = getattr(config, "model_type", type(config).__name__)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"{path} is an encoder–decoder ({kind}), not a decoder-only model: depth is not one axis "
            "there; choose a model such as GPT-2 or Llama"
        )
    if type(config) in known.MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    raise UnsupportedModel(f"{path} ({kind}) is not a decoder-only model: it has no next-token head")


def _refuse_pickle(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UnknownModel(
            f"{folder} has no config.json: give the folder that save_pretrained wrote, or a .gguf file"
        )
    if any(folder.glob("*.safetensors")):
        return
    pickles = [path.name for pattern in PICKLES for path in sorted(folder.glob(pattern))]
    if pickles:
        raise UnsupportedModel(
            f"{folder} holds only pickled weights ({pickles[0]}), and unpickling runs whatever code is "
            "in the file: convert it to safetensors with save_pretrained where you trust it"
        )
    raise UnknownModel(f"{folder} has a config.json but no .safetensors file: the weights are missing")


def _digest(folder: Path) -> str:
    """The sha256 of the weights, or "" where hashing them would take long."""
    weights = sorted(folder.glob("*.safetensors"))
    if sum(path.stat().st_size for path in weights) > HASHED:
        return ""
    return hashlib.sha256("".join(convert.sha256(path) for path in weights).encode()).hexdigest()


def _why(where: _Where, error: Exception) -> str:
    """One sentence for what transformers or the Hub's client said."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text or "custom code" in text:
        return f"{where.path} needs code of its own to run, which is never executed here"
    if where.gated or "gated" in text.lower() or "401" in text:
        terms = f"https://huggingface.co/{where.path}"
        return (
            f"{where.path} is gated and not in the Hub's cache here: with a network, accept its terms at "
            f"{terms}, then run `hf auth login` or set HF_TOKEN ({text[:120]})"
        )
    if not Path(where.path).is_dir():
        return (
            f"{where.path} is not in the Hub's cache here and could not be fetched: check the name and "
            f"the network, or name a local folder or .gguf file ({text[:120]})"
        )
    return f"{where.path} can't be read as a model folder: {text[:240]}"


def _dtype(name: str | None) -> torch.dtype:
    dtype = getattr(torch, name or "float32", None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UnknownModel(f"{name} is no number format: choose float32, bfloat16 or float16")
    return dtype


def _device(name: str | None) -> torch.device:
    if name is None:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return accelerator or torch.device("cpu")
    try:
        torch.zeros(1, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UnknownModel(f"there is no device {name} here: choose cpu, cuda or mps") from error
