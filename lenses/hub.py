"""A model of the Hugging Face Hub: whether the Hub answers, and its files in the Hub's cache.

Law: after `fetching`, what transformers reads of the common kind of repository, with safetensors weights
under their usual names, is in the cache, and is read from there without a network. Of any other kind
nothing is fetched here: transformers does that while it reads, in ways of its own.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lenses.errors import UnknownModel

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
ADAPTER = "adapter_config.json"
GENERATION = "generation_config.json"


@dataclass(frozen=True)
class Where:
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

    def commit(self) -> str:
        """The Hub's commit that its configuration was read of, or "" for a folder."""
        from huggingface_hub import try_to_load_from_cache

        if Path(self.path).is_dir():
            return ""
        config = try_to_load_from_cache(self.path, "config.json", revision=self.revision)
        return Path(config).parent.name if isinstance(config, str) else ""

    def pinned(self) -> Where:
        """The same at that commit, so that all its files are of one."""
        return replace(self, revision=self.commit() or self.revision)


def reachable() -> bool:
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


def named(revision: str | None) -> str | None:
    """A revision that is one: the Hub's client takes it for a part of a path, and reads what is there."""
    if revision and (not re.fullmatch(r"\w[\w.\-/]*", revision) or ".." in revision):
        raise UnknownModel(f"{revision[:60]!r} is no revision: give a branch, a tag or a commit of the Hub")
    return revision


def fetching(where: Where, config: Any) -> Generator[str, None, Where | None]:
    """Fetch the files of a Hub model, each named before it comes; returns where it is then read from, or
    None for a repository of another kind.

    Raises whatever the Hub's client raises.
    """
    if where.local:
        return where
    yield ADAPTER
    if _cached(where, ADAPTER) is not None or getattr(config, "transformers_weights", None) is not None:
        return None
    yield WEIGHTS
    if _cached(where, WEIGHTS) is None:
        index = _cached(where, INDEX)
        if index is None:
            return None
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        for number, name in enumerate(shards, start=1):
            yield f"{name}, file {number} of {len(shards)}"
            if _cached(where, name) is None:
                return None
    yield GENERATION
    _cached(where, GENERATION)
    return replace(where, local=True)


def _cached(where: Where, name: str) -> Path | None:
    """A file of the repository in the Hub's cache, fetched if it is not there; None if there is none."""
    from transformers.utils import cached_file

    found = cached_file(
        where.path, name, revision=where.revision, _raise_exceptions_for_missing_entries=False
    )  # fmt: skip
    return None if found is None else Path(found)
