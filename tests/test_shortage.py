"""Memory that runs out is one sentence, wherever it does: before, while and after a model is there."""

from __future__ import annotations

import errno
import sys
from contextlib import contextmanager

import accelerate
import numpy as np
import pytest
import torch
import transformers as hf

import lenses
from lenses import batch, cli, convert, question, shortage
from lenses.decoder import Decoder
from lenses.errors import BadOption, NoRoom
from lenses.methods.conductance import Conductance
from lenses.methods.logit_lens import LogitLens
from lenses.prompts import Row
from lenses.prompts.workbook import _refusing
from tests import tiny, tiny_gguf
from tests.ui.pages import opened, texts

SHORT = "there is not enough memory for"
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 10 MiB free")
CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12")


def full(*_, **__):
    raise FULL


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        CPU,
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_memory_that_runs_out_is_known_by_any_name(error):
    with pytest.raises(NoRoom, match=f"^{SHORT} this prompt.*: shorten the text"), shortage.noticed(
        "this prompt"
    ):  # fmt: skip
        raise error


@pytest.mark.parametrize("make", [lambda: torch.empty(1 << 59), lambda: np.empty(1 << 59)])
def test_memory_that_a_library_really_lacks_is_known_with_the_figure(make):
    with pytest.raises(NoRoom, match=r"\(\d\S* \w+ more were asked for\)"), shortage.noticed("this"):
        make()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes"),
        BadOption("out of memory"),
        OSError(errno.ENOENT, "x"),
        ValueError("out of memory"),
    ],
)
def test_no_other_error_is_taken_for_it(error):
    assert shortage.no_room(error, "this") is None
    with pytest.raises(type(error)) as raised, shortage.noticed("this"):
        raise error
    assert raised.value is error


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("llama", tmp_path_factory.mktemp("models") / "llama"))


# Where it runs out


@pytest.mark.parametrize("error", [FULL, CPU])
def test_a_command_that_runs_out_of_memory_ends_in_one_line(error, folder, monkeypatch, capsys):
    def fails(*_):
        raise error

    monkeypatch.setattr(question, "aim", fails)
    monkeypatch.setattr(sys, "argv", ["lenses", "compare", "w3 w4", "--model", folder, "--lens", "ig-lens"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    assert (end.value.code, printed.out) == (1, "")
    assert printed.err.startswith(f"lenses: {SHORT} what was asked for (")
    assert len(printed.err.splitlines()) == 1


def test_a_row_of_a_list_that_has_no_room_says_so(monkeypatch):
    monkeypatch.setattr(question, "read", full)
    (found,) = batch.run(tiny.decoder("gpt2"), [Row(1, 2, "w3 w4")], ["dla"])
    assert f"{SHORT} this prompt (2.00 GiB more were asked for)" in found.failure
    assert found.passing


@pytest.mark.parametrize("part", ["weights", "tokenizer", "proof"])
def test_a_model_that_has_no_room_while_it_is_loaded_is_not_said_to_be_missing(part, folder, monkeypatch):
    places = {"weights": hf.AutoModelForCausalLM, "tokenizer": hf.AutoTokenizer, "proof": Decoder}
    monkeypatch.setattr(places[part], "__init__" if part == "proof" else "from_pretrained", full)
    with pytest.raises(NoRoom, match=SHORT):
        lenses.load(folder, device="cpu")


def test_a_gguf_file_or_a_workbook_that_has_no_room_is_not_said_to_be_damaged(monkeypatch, tmp_path):
    monkeypatch.setenv("LENSES_CACHE", str(tmp_path))
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(hf.AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(NoRoom, match=r"tiny\.gguf"), convert.without_bars():
        lenses.load(str(path))
    with pytest.raises(NoRoom, match=r"list\.xlsx.*save it as CSV"), _refusing("list.xlsx"):
        raise MemoryError


@pytest.mark.parametrize("pass_of", ["proof", "gradient"])
def test_an_offloaded_model_that_has_no_room_is_not_said_to_be_unfit(pass_of, monkeypatch):
    model = accelerate.cpu_offload(tiny.model("llama"), "cpu")
    if pass_of == "proof":
        monkeypatch.setattr(Decoder, "flow", full)
        with pytest.raises(torch.OutOfMemoryError):
            Decoder(model, tiny.tokenizer(), "llama")
        return
    decoder = Decoder(model, tiny.tokenizer(), "llama")
    monkeypatch.setattr(Decoder, "_forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        decoder.refuse_cut("it")


# On the page


@contextmanager
def page_without_room(monkeypatch, kind: type, name: str):
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, full)
        yield


def test_a_card_without_room_says_so_and_leaves_the_others(folder, fresh, monkeypatch):
    for kind, name in ((LogitLens, "attribute"), (Conductance, "attributing")):
        with page_without_room(monkeypatch, kind, name):
            at = opened(folder, lenses=f"ig-lens,{kind.name}")
        assert f"{SHORT} " in texts(at)
        assert "defect of LensLedger" not in texts(at)
        assert "IG-Lens" in texts(at)


def test_a_page_without_room_says_so(folder, fresh, monkeypatch):
    monkeypatch.setattr(question, "read", full)
    at = opened(folder, lenses="ig-lens")
    assert f"{SHORT} this text (2.00 GiB more were asked for)" in texts(at)
