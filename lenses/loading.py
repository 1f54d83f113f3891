"""A model's name → a `Decoder`: safetensors or GGUF only, no remote code, nothing invented.

What is refused, with the reason: a pickle checkpoint, a model that brings code of its own, an
encoder–decoder, weights that are missing from the checkpoint, and whatever `proof` refuses.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from lenses import catalog, convert, devices, shortage, watermark
from lenses.building import BUILDING
from lenses.decoder import Decoder
from lenses.errors import LensesError, UnknownModel, UnsupportedModel
from lenses.offload import Offload
from lenses.progress import Progress, finish
from lenses.proof import TOLERANCE

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
HASHED = 1 << 30
"""Bytes of a local folder's weights up to which its revision is their hash."""


def load(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Decoder:
    """The decoder of a catalog name, a Hub id, a local folder or a `.gguf` file.

    `dtype` (float32 unless said otherwise) and `device` (an accelerator with float64 where there is one) are
    torch's names; `auto` spreads the model over all devices, then memory, then the disk. Raises
    `UnknownModel`, `UnsupportedModel`, and `NoRoom` where one device has no room for it.
    """
    return finish(loading(model, revision=revision, dtype=dtype, device=device))


def loading(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Generator[Progress, None, Decoder]:
    """`load`, with its progress: yields each step and returns the decoder."""
    number, place = _dtype(dtype), devices.named(device)
    source = catalog.find(model)
    if source.wheel or source.gguf:
        folder = yield from convert.prepare(source)
        where, (name, version) = _Where(str(folder)), convert.origin(folder)
    elif source.folder:
        _refuse_pickle(source.folder)
        where, name = _Where(str(source.folder)), f"folder:{source.name}"
        version = _digest(source.folder)
    else:
        hub = str(source.hub)
        yield Progress(f"asking the Hugging Face Hub for {hub}")
        where = _Where(hub, _named(revision), source.gated, local=not _reachable())
        name, version = f"hub:{hub}", ""
    yield Progress(f"loading {source.name}")
    with BUILDING:
        network, tokenizer, commit = _read(where, number, place)
    network.requires_grad_(False).eval()
    yield Progress(f"proving the readout of {source.name}")
    with shortage.noticed(source.name, shortage.SMALLER):
        return Decoder(network, tokenizer, source.name, name, version or commit)


def weights(hub: str, revision: str | None = None) -> int:
    """How many weights a Hub model has, from its configuration alone; raises `UnknownModel`.

    Builds the model without memory, so that nothing but the configuration is fetched.
    """
    where = _Where(hub, _named(revision), local=not _reachable())
    with _reading(where), BUILDING:
        return _counted(_config(where), hub)


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


def _read(where: _Where, dtype: torch.dtype, place: torch.device | None) -> tuple[Any, Any, str]:
    """The network where it is to be, its tokenizer, and the Hub's commit ("" for a folder)."""
    offload = Offload() if place is None else None
    with _reading(where):
        config = _config(where)
        kind = _auto_class(config, where.path)
        # How small a quantised checkpoint is is not in its configuration.
        if place is not None and not hasattr(config, "quantization_config"):
            watermark.refuse(where.path, _counted(config, where.path), dtype, place)
        network, report = kind.from_pretrained(
            **where(), config=config, dtype=dtype, use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, by name
            **_placed(place, offload),
        )  # fmt: skip
    if offload is not None:
        offload.keep_with(network)
    tokenizer = _tokenizer(where)
    convert.refuse_missing(where.path, report)
    return network, tokenizer, _commit(where)


def _placed(place: torch.device | None, offload: Offload | None) -> dict[str, Any]:
    """Where transformers is to put the weights: an accelerator's never pass through memory as a whole."""
    if offload is None:
        return {} if place == torch.device("cpu") else {"device_map": {"": place}}
    return {
        "device_map": "auto",
        "max_memory": watermark.allowances(),
        "offload_folder": str(offload.folder),
    }


def _counted(config: Any, path: str) -> int:
    """How many weights a configuration makes, built without memory."""
    with torch.device("meta"):
        network = _auto_class(config, path).from_config(copy.deepcopy(config), dtype=torch.float32)
    return sum(parameter.numel() for parameter in network.parameters())


def _config(where: _Where) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(**where())


@contextmanager
def _reading(where: _Where) -> Iterator[None]:
    """Whatever is raised while a folder or the Hub is read becomes one sentence."""
    try:
        with convert.without_bars():
            yield
    except LensesError:
        raise
    except Exception as error:
        # Transformers, the Hub's client and tokenizers raise whatever a folder brings them to.
        short = shortage.no_room(error, where.path, shortage.SMALLER)
        raise short or UnknownModel(_why(where, error)) from error


def _commit(where: _Where) -> str:
    """The Hub's commit that was read, or "" for a folder."""
    from huggingface_hub import try_to_load_from_cache

    if Path(where.path).is_dir():
        return ""
    config = try_to_load_from_cache(where.path, "config.json", revision=where.revision)
    return Path(config).parent.name if isinstance(config, str) else ""


def _tokenizer(where: _Where) -> Any:
    from transformers import AutoTokenizer

    try:
        with convert.without_bars():
            return AutoTokenizer.from_pretrained(**where())
    except Exception as error:
        # As above: the reason is for the user, whatever raised it.
        short = shortage.no_room(error, f"the tokenizer of {where.path}")
        raise short or UnknownModel(
            f"the tokenizer of {where.path} can't be read, so no prompt can be: add tokenizer.json and "
            f"tokenizer_config.json ({shorten(str(error), 160, placeholder=' …')})"
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
    except (OSError, http.client.HTTPException) as error:
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


def _named(revision: str | None) -> str | None:
    """A revision that is one: the Hub's client takes it for a part of a path, and reads what is there."""
    if revision and (not re.fullmatch(r"\w[\w.\-/]*", revision) or ".." in revision):
        raise UnknownModel(f"{revision[:60]!r} is no revision: give a branch, a tag or a commit of the Hub")
    return revision


def _digest(folder: Path) -> str:
    """The sha256 of the weights, or "" where hashing them would take long."""
    weights = sorted(folder.glob("*.safetensors"))
    try:
        if sum(path.stat().st_size for path in weights) > HASHED:
            return ""
        return hashlib.sha256("".join(convert.sha256(path) for path in weights).encode()).hexdigest()
    except OSError as error:
        raise UnknownModel(f"{error.filename} can't be read: {error.strerror}") from error


def _why(where: _Where, error: Exception) -> str:
    """One sentence for what transformers or the Hub's client said."""
    text = shorten(str(error), 200, placeholder=" …")
    if "trust_remote_code" in str(error) or "custom code" in str(error):
        return f"{where.path} needs code of its own to run, which is never executed here"
    if Path(where.path).is_dir():
        return f"{where.path} can't be read as a model folder: {text}"
    if "model.safetensors" in text:
        return (
            f"{where.path} has no safetensors weights on the Hub, and pickled ones run whatever code is in "
            "them: choose a revision or a copy of it that has"
        )
    if where.gated or "gated repo" in text or "401 Client Error" in text:
        terms = f"https://huggingface.co/{where.path}"
        return (
            f"{where.path} is gated and not in the Hub's cache here: with a network, accept its terms at "
            f"{terms}, then run `hf auth login` or set HF_TOKEN ({text})"
        )
    return (
        f"{where.path} is not in the Hub's cache here and could not be fetched: check the name (`lenses "
        "models` lists those that need no Hub id) and the network, or name a local folder or .gguf file "
        f"({text})"
    )


def _dtype(name: str | None) -> torch.dtype:
    known = {str(dtype).removeprefix("torch."): dtype for dtype in TOLERANCE}
    if (name or "float32") not in known:
        raise UnknownModel(f"{name} is no number format for a model: choose {', '.join(known)}")
    return known[name or "float32"]
