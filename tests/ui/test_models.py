"""Models in memory: loaded once, one at a time, and freed when another takes their place."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

from lenses import memory
from lenses.catalog import MODELS
from lenses.errors import UnknownModel
from lenses.ui import models, room
from lenses.ui.jobs import Failed
from tests import tiny

SOON = 60.0
FAMILIES = ("gpt2", "llama", "bloom", "mamba")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    return {family: str(tiny.save(family, home / family)) for family in FAMILIES}


def load(choice: models.Choice) -> models.Held:
    models.want("a", choice)
    assert models.loader().idle(SOON)
    found = models.held(choice)
    assert found is not None, models.state(choice)
    return found


def alive(places: list[weakref.ref]) -> int:
    gc.collect()
    return sum(place() is not None for place in places)


def test_four_models_loaded_one_after_another_leave_one_alive(folders, fresh):
    decoders = []
    for family in FAMILIES:
        decoders.append(weakref.ref(load(models.choice_of(folders[family])).decoder))
        assert alive(decoders) == 1
    assert decoders[-1]() is not None


def test_as_many_models_stay_as_the_host_says_and_the_one_unused_longest_goes_first(
    folders, fresh, monkeypatch
):
    monkeypatch.setenv("LENSES_MODELS_KEPT", "2")
    first, second, third = (models.choice_of(folders[family]) for family in FAMILIES[:3])
    load(first)
    load(second)
    assert models.held(first) is not None
    load(third)
    assert [models.held(one) is not None for one in (first, second, third)] == [True, False, True]


def test_five_sessions_that_start_at_once_load_the_model_once(folders, fresh, monkeypatch):
    from lenses import loading

    loaded = []
    original = loading._read
    monkeypatch.setattr(loading, "_read", lambda *given: loaded.append(1) or original(*given))
    choice = models.choice_of(folders["gpt2"])
    start = threading.Barrier(5)

    def visit(who: str) -> None:
        start.wait()
        models.want(who, choice)

    visitors = [threading.Thread(target=visit, args=(str(k),)) for k in range(5)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert models.loader().idle(SOON)
    assert models.held(choice) is not None
    models.want("late", choice)
    assert models.loader().idle(SOON)
    assert len(loaded) == 1


def test_a_model_that_fails_to_load_leaves_the_old_one_in_its_place(folders, fresh, tmp_path):
    good, bad = models.choice_of(folders["gpt2"]), models.choice_of(str(tmp_path / "missing"))
    held = load(good)
    models.want("a", bad)
    assert models.loader().idle(SOON)
    assert isinstance(models.state(bad), Failed)
    assert "no model folder at" in models.state(bad).reason
    assert models.held(good) is held
    models.forgive(bad)
    assert models.state(bad) is None


def test_a_model_that_has_no_room_leaves_the_old_one_in_its_place(folders, fresh, monkeypatch):
    from lenses import watermark

    good, large = (models.choice_of(folders[family], device="cpu") for family in ("gpt2", "llama"))
    held = load(good)
    monkeypatch.setattr(watermark, "free", lambda device: 1_000_000)
    models.want("a", large)
    assert models.loader().idle(SOON)
    assert "in float32 and cpu has 0.0 GB free" in models.state(large).reason
    assert models.held(good) is held


@pytest.fixture
def tight(folders, fresh, monkeypatch):
    """Room for one of two models: what is told as free lacks what is held and alive of gpt2."""
    from lenses import watermark

    monkeypatch.setenv("LENSES_MEMORY", "1")
    good, large = (models.choice_of(folders[family], device="cpu") for family in ("gpt2", "llama"))
    gone = weakref.ref(load(good).decoder)
    enough = watermark.ROOM + 4 * memory.parameters(folders["llama"])
    monkeypatch.setattr(watermark, "free", lambda device: enough - (1 if gone() else 0))
    return good, large


def test_a_model_that_fits_only_without_the_old_one_takes_its_place(tight):
    good, large = tight
    load(large)
    assert models.held(good) is None


def test_a_model_that_somebody_works_with_stays_and_the_other_is_told_so(tight, monkeypatch):
    good, large = tight
    monkeypatch.setattr(room, "PATIENCE", 0.5)
    working = models.held(good)
    models.want("a", large)
    assert models.loader().idle(SOON)
    reason = models.state(large).reason
    assert "llama needs about" in reason
    assert reason.endswith(f"{good.name} stays in memory until the work with it is done")
    assert models.held(good) == working
    assert models.held(good).serial == working.serial  # its results still count
    del working
    models.forgive(large)
    load(large)  # tried again, it has room


def test_a_model_that_had_to_go_is_loaded_again_when_it_is_wanted_again(folders, fresh):
    first, second = (models.choice_of(folders[family]) for family in ("gpt2", "llama"))
    before = load(first).serial
    load(second)
    assert models.held(first) is None
    # Its results are told apart from those of the first time by the serial number.
    assert load(first).serial > before


def test_the_same_model_in_another_format_is_another_choice(folders, fresh):
    plain = load(models.choice_of(folders["gpt2"]))
    double = load(models.choice_of(folders["gpt2"], dtype="float64"))
    assert (plain.decoder.dtype, double.decoder.dtype) == (torch.float32, torch.float64)


def test_only_the_models_that_the_host_names_are_loaded_and_no_path_is_looked_at(
    folders, fresh, monkeypatch, tmp_path
):
    monkeypatch.setenv("LENSES_MODELS", "smollm2-135m,gpt2")
    for name in (folders["gpt2"], str(tmp_path / "missing")):
        choice = models.choice_of(name)
        models.want("a", choice)
        assert models.loader().idle(SOON)
        # The same words for a path that exists and for one that does not.
        assert models.state(choice).reason.startswith("this page loads only smollm2-135m, gpt2: choose")


def test_the_hosts_device_goes_before_the_visitors(monkeypatch):
    assert models.choice_of("gpt2", device="cuda").device == "cuda"
    monkeypatch.setenv("LENSES_DEVICE", "cpu")
    assert models.choice_of("gpt2", device="cuda").device == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_another_model_takes_the_place_of_the_first(folders, fresh):
    load(models.choice_of(folders["gpt2"], device="cuda"))
    one = torch.cuda.memory_allocated()
    for family in ("llama", "gpt2"):
        load(models.choice_of(folders[family], device="cuda"))
    assert torch.cuda.memory_allocated() <= one


@pytest.mark.parametrize("family", FAMILIES)
def test_the_size_that_is_told_before_loading_is_that_of_the_weights(family, folders):
    own = {p.data_ptr(): p.numel() for p in tiny.model(family).parameters()}
    assert memory.parameters(folders[family]) == sum(own.values())


def test_the_size_of_a_gguf_file_is_told_too(tmp_path):
    from tests import tiny_gguf

    path = tmp_path / "tiny.gguf"
    tiny_gguf.write(path)
    assert memory.parameters(str(path)) > 0


@pytest.mark.real
def test_the_catalogs_size_of_the_default_model_is_that_of_its_weights(smol):
    own = {p.data_ptr(): p.numel() for p in smol.model.parameters()}
    assert memory.parameters(MODELS[0].name) == sum(own.values())


def test_what_is_no_model_file_is_a_sentence(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"not a header")
    with pytest.raises(UnknownModel, match="can't be read as safetensors"):
        memory.parameters(str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(b"not a header")
    with pytest.raises(UnknownModel, match="can't be read as GGUF"):
        memory.parameters(str(tmp_path / "a.gguf"))
    assert memory.parameters("owner/some-model") is None
