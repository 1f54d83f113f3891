"""`lenses report`: what it prints, how it ends, and that its options are followed."""

from __future__ import annotations

import csv
import json

import pytest

from lenses import console
from lenses.progress import Progress
from lenses.report import FILES
from tests.test_cli import _cache, folders, run  # noqa: F401

LIST = "prompt,target,note\nw3 w17,w5,a\nw9,nosuch,b\n,w5,c\n"


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(LIST)
    return path


def test_a_report_is_written_and_told_in_sentences(run, listed, tmp_path):  # noqa: F811
    status, out, err = run("report", str(listed), "--model", "gpt2", "--output", str(tmp_path / "out"))
    assert status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(FILES)
    assert "3 prompts were asked of gpt2; 1 could be explained, and 2 prompts could not" in out
    assert "Row 2: the target 'nosuch' is not in this model's vocabulary" in out
    assert "report.html" in out
    assert "CSV, UTF-8, commas, header in line 1, columns prompt, target, note: 3 rows" in err
    with open(tmp_path / "out" / "summary.csv", encoding="utf-8", newline="") as file:
        assert [line["note"] for line in csv.DictReader(file)] == ["a", "b", "c"]


def test_the_options_are_followed(run, listed, tmp_path):  # noqa: F811
    listed.write_bytes("text;word\nw3 w17;w5\n".encode("utf-16"))
    out = tmp_path / "out"
    status, _, err = run(
        "report", str(listed), "--model", "gpt2", "-o", str(out), "--lens", "dla", "--lens", "dla",
        "--prompt-column", "text", "--target-column", "word", "--delimiter", "semicolon",
        "--encoding", "utf-16", "--batch-size", "1",
    )  # fmt: skip
    assert status == 0, err
    found = json.loads((out / "report.json").read_text())
    assert [lens["name"] for lens in found["comparisons"][0]["lenses"]] == ["dla"]
    assert found["comparisons"][0]["target"]["text"] == "w5"


def test_a_list_without_a_header_is_read_by_place(run, listed, tmp_path):  # noqa: F811
    listed.write_text("w3 w17,w5\n")
    status, _, err = run("report", str(listed), "--model", "gpt2", "-o", str(tmp_path / "out"), "--no-header")
    assert status == 0, err
    assert json.loads((tmp_path / "out" / "report.json").read_text())["comparisons"][0]["prompt"] == "w3 w17"


def test_slow_methods_are_estimated_first(run, listed, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    status, _, err = run("report", str(listed), "--model", "gpt2", "-o", str(out), "--lens", "layer-ig")
    assert status == 0
    assert "layer-ig: about" in err


def test_a_run_goes_on_only_with_resume(run, listed, tmp_path):  # noqa: F811
    command = ("report", str(listed), "--model", "gpt2", "-o", str(tmp_path / "out"))
    assert run(*command)[0] == 0
    status, out, err = run(*command)
    assert (status, out) == (1, "")
    assert "add --resume" in err
    assert run(*command, "--resume")[0] == 0


WRONG = {
    "no such file": (["nosuch.csv", "-o", "out"], 1, "nosuch.csv: No such file"),
    "a folder": ([".", "-o", "out"], 1, "Is a directory"),
    "no output": (["LIST"], 2, "Missing option"),
    "an output that is a file": (["LIST", "-o", "LIST"], 1, "takes the name of a folder"),
    "an unknown lens": (["LIST", "-o", "out", "--lens", "x"], 1, "there is no lens 'x'"),
    "no such column": (["LIST", "-o", "out", "--prompt-column", "x"], 1, "has no column 'x'"),
    "an unknown encoding": (["LIST", "-o", "out", "--encoding", "x"], 1, "x"),
    "a batch of none": (["LIST", "-o", "out", "--batch-size", "0"], 2, "batch-size"),
    "an unknown model": (["LIST", "-o", "out", "--model", "nosuch"], 1, "nosuch"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line_and_leaves_no_folder(case, run, listed, folders):  # noqa: F811
    arguments, expected, said = WRONG[case]
    status, out, err = run("report", *(str(listed) if part == "LIST" else part for part in arguments))
    assert (status, out) == (expected, "")
    assert said in err.splitlines()[-1] or said in err
    assert "Traceback" not in err
    assert not (folders / "out").exists()


def test_a_list_without_a_good_row_is_refused(run, listed, tmp_path):  # noqa: F811
    listed.write_text("prompt,target\n,x\n")
    status, _, err = run("report", str(listed), "--model", "gpt2", "-o", str(tmp_path / "out"))
    assert status == 1
    assert "no row of it can be run" in err


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(run, listed, tmp_path, monkeypatch):  # noqa: F811
    def stopped(*_, **__):
        yield Progress("explaining")
        raise KeyboardInterrupt

    monkeypatch.setattr("lenses.report.making", stopped)
    status, _, err = run("report", str(listed), "--model", "gpt2", "-o", str(tmp_path / "out"))
    assert status == 130
    assert "run the same with --resume" in err


def test_a_run_that_nobody_watches_is_not_silent(monkeypatch, capsys):
    monkeypatch.setattr(console, "SILENCE", 0.0)

    def work():
        yield Progress("explaining", 3, 7)
        return "made"

    assert console.watched(work()) == "made"
    assert "explaining: 3 of 7" in capsys.readouterr().err
