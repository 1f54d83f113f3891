"""A model of the Hub is fetched while others work, and only built under the lock that holds them up."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

import lenses
from lenses import hub, loading
from lenses.building import BUILDING
from lenses.progress import Progress
from lenses.ui.jobs import Jobs
from lenses.ui.results import Results
from tests import tiny

SOON = 30.0
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ONE, MANY = "one file", "shards"


class Far:
    """A repository whose weights are far away: each file comes into the cache when it is fetched."""

    def __init__(self, home: Path, kind: str, monkeypatch) -> None:
        self.far, self.asked, self.locked = home / "far", list[str](), list[bool]()
        size = "100GB" if kind == ONE else "5KB"
        tiny.model("llama").save_pretrained(self.far, max_shard_size=size)
        tiny.tokenizer().save_pretrained(self.far)
        repository = home / "cache" / "models--owner--name"
        self.near = repository / "snapshots" / COMMIT
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        self.near.mkdir(parents=True)
        for path in self.far.iterdir():
            if path.name == "config.json" or path.name.startswith("token"):
                shutil.copy(path, self.near)
        self.arrived = threading.Event()
        self.arrived.set()
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "cache"))
        monkeypatch.setattr(loading, "reachable", lambda: True)
        monkeypatch.setattr(hub, "_cached", self._cached)

    def _cached(self, where: hub.Where, name: str) -> Path | None:
        assert (where.path, where.revision) == ("owner/name", COMMIT)
        self.asked.append(name)
        self.locked.append(BUILDING.locked())
        assert self.arrived.wait(SOON)
        if not (self.far / name).exists():
            return None
        return Path(shutil.copy(self.far / name, self.near))


@pytest.fixture(params=[ONE, MANY])
def far(request, tmp_path, monkeypatch):
    return Far(tmp_path, request.param, monkeypatch)


def test_files_are_fetched_without_the_lock_and_nothing_is_under_it(far, monkeypatch):
    built, read = [], loading._read
    monkeypatch.setattr(
        loading,
        "_read",
        lambda where, *given: built.append((BUILDING.locked(), where.local)) or read(where, *given),
    )
    decoder = lenses.load("owner/name")
    assert lenses.compare(
        decoder, tiny.PROMPT, target="w5", lenses=["logit-lens"]
    ).probability == pytest.approx(0.086635, abs=1e-6)
    assert built == [(True, True)]
    assert not any(far.locked)
    weights = {path.name for path in far.far.glob("*.safetensors")}
    assert weights <= set(far.asked)
    assert {path.name for path in far.near.iterdir()} >= weights
    assert (decoder.revision, decoder.source) == (COMMIT, "hub:owner/name")


def test_slow_work_goes_on_while_a_visitors_model_is_fetched(far):
    def work():
        yield Progress("step")
        return "made"

    far.arrived.clear()
    found: list[object] = []
    visitor = threading.Thread(target=lambda: found.append(lenses.load("owner/name")))
    visitor.start()
    while not far.asked:
        assert visitor.is_alive()
    jobs = Jobs(Results(), beside=BUILDING)
    jobs.want("another", {"key": work})
    assert jobs.idle(SOON)
    assert (jobs.results.get("key"), found) == ("made", [])
    assert loading.weights("owner/name") > 0  # which a page asks for
    far.arrived.set()
    visitor.join()
    assert len(found) == 1


def test_every_file_is_a_step_that_can_be_given_up(far):
    steps = loading.loading("owner/name")
    told = []
    for step in steps:
        told.append(step.text)
        if "model" in step.text.split(": ")[-1]:
            break
    steps.close()
    assert told[-1].startswith("fetching owner/name from the Hugging Face Hub: model")
    assert not BUILDING.locked()
    assert not list(far.near.glob("*.safetensors"))


@pytest.mark.parametrize("what", ["an adapter", "named weights", "no safetensors"])
def test_a_repository_of_another_kind_is_left_to_transformers(what, tmp_path, monkeypatch):
    far = Far(tmp_path, ONE, monkeypatch)
    if what == "an adapter":
        (far.far / hub.ADAPTER).write_text("{}")
    if what == "named weights":
        (far.near / "config.json").write_text(
            json.dumps(json.loads((far.near / "config.json").read_text()) | {"transformers_weights": "other"})
        )
    if what == "no safetensors":
        (far.far / hub.WEIGHTS).unlink()
    seen = []
    monkeypatch.setattr(loading, "_read", lambda where, *given: seen.append(where) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lenses.load("owner/name")
    assert [(where.local, where.revision) for where in seen] == [(False, None)]


def test_what_goes_wrong_while_a_file_is_fetched_is_a_sentence(tmp_path, monkeypatch):
    far = Far(tmp_path, ONE, monkeypatch)

    def broken(where, name):
        raise OSError("the line broke")

    monkeypatch.setattr(hub, "_cached", broken)
    with pytest.raises(lenses.UnknownModel, match=r"owner/name .*could not be fetched.*the line broke"):
        lenses.load("owner/name")
    assert not far.asked
    assert not BUILDING.locked()


def test_a_model_that_has_no_room_is_not_fetched(tmp_path, monkeypatch):
    from lenses import watermark

    far = Far(tmp_path, ONE, monkeypatch)
    monkeypatch.setattr(watermark, "free", lambda device: 1000)
    with pytest.raises(lenses.errors.NoRoom):
        lenses.load("owner/name", device="cpu")
    assert not far.asked
