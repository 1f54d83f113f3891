"""A model that has no room is refused before it is loaded, with the figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

import lenses
from lenses import devices, loading, watermark
from lenses.errors import BadOption, NoRoom
from tests import tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return str(tiny.save("llama", tmp_path_factory.mktemp("llama")))


def having(monkeypatch, bytes: int | None) -> None:
    monkeypatch.setattr(watermark, "free", lambda device: bytes)


def needed(llama: str, size: int) -> int:
    weights = sum(p.numel() for p in tiny.model("llama").parameters())
    return size * weights + watermark.ROOM


def test_a_model_that_just_fits_is_loaded_and_one_byte_less_refuses_it(llama, monkeypatch):
    monkeypatch.setenv("LENSES_MEMORY", "1")
    having(monkeypatch, needed(llama, 4))
    assert lenses.load(llama, device="cpu").blocks == 3
    having(monkeypatch, needed(llama, 4) - 1)
    with pytest.raises(NoRoom):
        lenses.load(llama, device="cpu")
    assert lenses.load(llama, device="cpu", dtype="bfloat16").blocks == 3
    having(monkeypatch, None)  # where nothing tells, nothing is refused
    assert lenses.load(llama, device="cpu").blocks == 3


def test_nothing_is_read_of_a_model_that_has_no_room(llama, monkeypatch):
    import transformers

    having(monkeypatch, 1000)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(NoRoom, match=r"cpu has 0\.0 GB free"):
        lenses.load(llama, device="cpu")


def test_the_refusal_has_the_figures_and_the_ways_out(monkeypatch):
    having(monkeypatch, int(22.3e9))
    with pytest.raises(NoRoom) as refusal:
        watermark.refuse("owner/model", 7_000_000_000, torch.float32, torch.device("cuda", 0))
    assert str(refusal.value) == (
        "owner/model needs about 28.5 GB in float32 and cuda:0 has 22.3 GB free, of which 90% may be used "
        "(LENSES_MEMORY): choose bfloat16, device auto (--device auto), which also uses other devices and "
        "the disk, or a smaller model"
    )
    watermark.refuse("owner/model", 7_000_000_000, torch.bfloat16, torch.device("cuda", 0))
    assert refusal.value.device == "cuda:0"
    having(monkeypatch, int(22.3e9) + refusal.value.lacking)  # which is what it says
    watermark.refuse("owner/model", 7_000_000_000, torch.float32, torch.device("cuda", 0))
    having(monkeypatch, int(22.3e9) + refusal.value.lacking - 2)
    with pytest.raises(NoRoom):
        watermark.refuse("owner/model", 7_000_000_000, torch.float32, torch.device("cuda", 0))


def test_what_a_model_takes_on_a_device_is_the_bytes_of_its_weights_there():
    network = tiny.model("llama")
    weights = sum(p.nbytes for p in network.parameters())
    buffers = sum(b.nbytes for b in network.buffers())
    assert watermark.taken(network, CPU) == weights + buffers
    assert watermark.taken(network, torch.device("cuda", 0)) == 0


@pytest.mark.parametrize("text", ["0", "1.2", "-1", "most", "nan"])
def test_a_part_that_is_none_is_a_sentence(text, monkeypatch):
    monkeypatch.setenv("LENSES_MEMORY", text)
    with pytest.raises(BadOption, match="LENSES_MEMORY must be a number above 0"):
        watermark.part()


def available(monkeypatch, bytes: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=bytes))


def test_this_machine_says_how_much_is_free():
    assert watermark.free(CPU) > 1 << 20
    assert watermark.free(torch.device("meta")) is None


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux alone has this file")
def test_what_is_free_is_what_linux_can_give_without_swapping():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    told = int(lines["MemAvailable"].split()[0]) * 1024
    # Other processes take and give between the two looks.
    assert psutil.virtual_memory().available == pytest.approx(told, rel=0.2)


def test_memory_is_used_before_the_disk_where_no_file_tells_of_it(monkeypatch, tmp_path):
    """As on macOS and Windows, which have neither /proc nor groups."""
    monkeypatch.setattr(watermark, "GROUP", tmp_path / "none")
    monkeypatch.setattr(devices, "accelerator", lambda: None)
    monkeypatch.setenv("LENSES_MEMORY", "0.5")
    available(monkeypatch, 10 << 30)
    assert watermark.allowances() == {"cpu": (5 << 30) - watermark.ROOM}


def test_a_containers_limit_counts_where_it_is_less(monkeypatch, tmp_path):
    available(monkeypatch, 600_000)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 200000\n")
    monkeypatch.setattr(watermark, "GROUP", tmp_path)
    assert watermark.free(CPU) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert watermark.free(CPU) == 600_000


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_weights_are_counted_without_one_being_read(family):
    config = tiny.FAMILIES[family]()
    before = dict(vars(config))
    assert loading._counted(config, family) == sum(p.numel() for p in tiny.model(family).parameters())
    assert vars(config) == before
