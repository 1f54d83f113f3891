"""The command line: exit status, what is on stdout and stderr, and the JSON of the contract."""

from __future__ import annotations

import copy
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf

import lenses
from lenses import cli
from tests import tiny, tiny_gguf
from tests.contract import COMPARISON, faults, parsed

LONG = " ".join(["w3"] * 33)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """What a user may point `--model` at, by name: good, odd and broken."""
    root = tmp_path_factory.mktemp("models")
    for family in ("llama", "gpt2"):
        tiny.save(family, root / family)
    tiny.save("llama", root / "few-names", size=60)
    tiny.save("llama", root / "many-names", size=80)
    tiny.save("llama", root / "no-bos")
    no_bos = tiny.tokenizer()
    no_bos.bos_token = None
    no_bos.save_pretrained(root / "no-bos")
    infinite = tiny.model("llama")
    infinite.model.layers[1].mlp.down_proj.weight.data.mul_(float("inf"))
    infinite.save_pretrained(root / "infinite")
    tiny.tokenizer().save_pretrained(root / "infinite")
    t5 = hf.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    hf.T5ForConditionalGeneration(t5).save_pretrained(root / "t5")
    tiny.save("llama", root / "pickle")
    (root / "pickle" / "model.safetensors").unlink()
    torch.save({}, root / "pickle" / "pytorch_model.bin")
    tiny.save("llama", root / "unreadable")
    (root / "unreadable" / "model.safetensors").write_bytes(b"nothing of the kind")
    (root / "empty").mkdir()
    (root / "text.gguf").write_text("hello")
    tiny_gguf.write(root / "tiny.gguf")
    return root


@pytest.fixture(autouse=True)
def _cache(request, tmp_path, monkeypatch):
    """A cache of its own for each test but those of the real model."""
    if not request.node.get_closest_marker("real"):
        monkeypatch.setenv("LENSES_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def run(folders, monkeypatch, capsys):
    """Run a command in this process, beside the models: its status, stdout and stderr."""
    monkeypatch.chdir(folders)

    def of(*arguments):
        monkeypatch.setattr(sys, "argv", ["lenses", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return of


def asked(prompt, model, *options):
    return ("compare", prompt, "--model", model, "--lens", "ig-lens", *options)


WRONG = [
    # (arguments, exit status, what stderr says)
    (asked("", "no-bos"), 1, "the prompt is empty and the model has no BOS"),
    (asked("   ", "no-bos"), 1, "the prompt is empty"),
    (asked(LONG, "gpt2"), 1, "33 tokens and the model has places for 32"),
    (asked("w3 w70", "many-names"), 1, "token id 70 is outside the embedding, which has 64 rows"),
    (asked("w3", "few-names", "--target", "w63"), 1, "'w63' is not in this model's vocabulary"),
    (asked("w3", "many-names", "--target", "w70"), 1, "outside this vocabulary of 64 tokens"),
    (asked("w3", "llama", "--target", ""), 1, "is empty"),
    (asked("w3 w4", "llama", "--position", "2"), 1, "position 2 is outside the prompt"),
    (asked("caf\udce9", "llama"), 1, "UTF-8"),
    (asked("w3", "llama", "--target", "caf\udce9"), 1, "UTF-8"),
    (asked("w3", "llama", "--chat"), 1, "no chat template"),
    (asked("w3 w17", "infinite"), 1, "finite"),
    (asked("w3", "pickle"), 1, "only pickled weights"),
    (asked("w3", "t5"), 1, "encoder–decoder"),
    (asked("w3", "unreadable"), 1, "can't be read"),
    (asked("w3", "empty"), 1, "no config.json"),
    (asked("w3", "text.gguf"), 1, "text.gguf can't be read"),
    (asked("w3", "missing.gguf"), 1, "no GGUF file at missing.gguf"),
    (asked("w3", "./missing"), 1, "no model folder at ./missing"),
    (asked("w3", "no-such-model"), 1, "no-such-model"),
    (asked("w3", ""), 1, "smollm2-135m"),
    (("compare", "w3", "--model", "llama", "--lens", "no-such-lens"), 1, "choose from ig-lens, logit-lens"),
    (asked("w3", "llama", "--depths", "0,4"), 1, "depth 4 is outside 0…3"),
    (asked("w3", "llama", "--device", "abacus"), 1, "no device abacus here: choose auto, cpu or cuda"),
    (asked("w3", "llama", "--dtype", "int3"), 1, "int3 is no number format"),
    (asked("w3", "llama", "--depths", "1,b"), 1, "as 0,4,8, not '1,b'"),
    (
        asked("w3", "llama", "--readout", "rank"),
        1,
        "none of the lenses that were chosen takes readout 'rank'",
    ),
    (asked("w3", "llama", "--readout", "difference"), 1, "needs another word to measure against"),
    (asked("w3", "llama", "--readout", "log-odds", "--against", "w70"), 1, "not in this model's vocabulary"),
    (asked("w3", "llama", "--output", "missing/out.json"), 1, "no folder missing"),
    (asked("w3", "llama", "--output", "empty"), 1, "empty is a folder"),
    (asked("w3", "llama", "--steps", "0"), 2, "--steps"),
    (asked("w3", "llama", "--steps", "many"), 2, "--steps"),
    (asked("w3", "llama", "--baseline", "middle"), 2, "--baseline"),
    (asked("w3", "llama", "--format", "xml"), 2, "--format"),
    (asked("w3", "llama", "--no-such-option"), 2, "--no-such-option"),
    (("map", "w3", "--model", "llama", "--lens", "no-such-lens"), 1, "choose from ig-lens, logit-lens"),
    (("map", "w3", "--model", "llama", "--answer", "-1"), 2, "--answer"),
    (("map", "w3 " * 40, "--model", "gpt2"), 1, "40 tokens"),
    (("compare",), 2, "prompt"),
    (("compare", "w3", "w4"), 2, "w4"),
    (("no-such-command",), 2, "no-such-command"),
]


@pytest.mark.parametrize(("arguments", "status", "said"), WRONG, ids=[row[2] for row in WRONG])
def test_wrong_input_ends_in_one_or_two_lines_without_a_traceback(arguments, status, said, run):
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert said in err
    assert err.startswith("lenses: ")
    assert len(err.splitlines()) == (2 if status == 2 else 1)
    assert "Traceback" not in err


PRINTED = [
    # (arguments, what stdout holds)
    ((), ["Usage: lenses", "compare", "methods"]),
    (("--help",), ["Usage: lenses"]),
    (("compare", "--help"), ["--target", "--position", "--lens", "--baseline", "--steps", "--depths",
                             "--chat", "--format", "--output", "--model"]),
    (("methods",), ["ig-lens", "logit-lens", "dla", "layer-ig", "conductance", "ablation", "arXiv"]),
    (("models",), ["smollm2-135m", "gpt2", "pythia-160m", "qwen3-0.6b", "gemma-3-270m", ".gguf"]),
    (("compare", tiny.PROMPT, "--model", "llama", "--target", "w5"),
     ["llama · 3 blocks · float32", "w3 3", "w8 8", "w5 (id 5)", "8.66%", "embed", "◀ onset", "ig-lens",
      "logit-lens", "dla", "layer-ig", "conductance", "ablation", "exact", "not claimed", "Warning: ",
      "fewer depths", "Half of all movement (paper)", "Top 10, first time", "does not depend"]),
    (asked("w3 w4", "llama", "--target", "w9"), ["Onset: the probability changes by −0.07 points"]),
    (asked("w3", "tiny.gguf"), ["tiny.gguf · 2 blocks"]),
    (("map", "--help"), ["--model", "--lens", "--answer", "--chat", "--format", "--output"]),
    (("map", tiny.PROMPT, "--model", "llama", "--answer", "2"),
     ["llama · 3 blocks · float32", "IG-Lens, probability, depth 1 to 3", "w3", "w17", "depth 3"]),
    (("map", "w3 w4", "--model", "llama", "--lens", "logit-lens", "--format", "json"),
     ['"schema": "lenses.map/1"', '"lens": "logit-lens"', '"answer_from": null']),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "held"), PRINTED, ids=[" ".join(row[0][:2]) for row in PRINTED])
def test_what_was_asked_for_is_printed_and_stderr_stays_empty(arguments, held, run):
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    assert [words for words in held if words not in out] == []


def test_texts_of_users_are_not_read_as_markup(run):
    _, out, _ = run("compare", "[red]w3[/red]", "--model", "llama", "--target", "[bold]", "--lens", "dla")
    assert out == ""  # no such word
    _, out, _ = run(*asked("w3 [UNK]", "llama"))
    assert "[UNK] 0" in out


def lasting(result):
    """What two runs must agree on: all but the clock."""
    result = copy.deepcopy(result)
    del result["provenance"]["created"]
    for lens in result["lenses"]:
        del lens["seconds"]
    return result


@pytest.fixture
def found(run):
    return parsed(run("compare", tiny.PROMPT, "--model", "llama", "--target", "w5", "--format", "json")[1])


def test_the_json_is_of_the_contracts_shape(found):
    assert faults(found, COMPARISON) == []


def test_the_json_is_the_librarys_own_object(found, folders):
    result = lenses.compare(lenses.load(str(folders / "llama")), tiny.PROMPT, target="w5")
    assert lasting(found) == lasting(result.to_dict())


def test_depths_values_and_positions_are_as_long_as_the_contract_says(found):
    depths = {lens["name"]: lens["depths"] for lens in found["lenses"]}
    shares, levels = [1, 2, 3], [0, 1, 2, 3]
    assert depths == {
        "ig-lens": shares, "logit-lens": levels, "dla": levels, "layer-ig": shares, "conductance": shares,
        "ablation": shares,
    }  # fmt: skip
    for lens in found["lenses"]:
        assert len(lens["values"]) == len(lens["depths"])
        for row, total in zip(lens.get("positions", []), lens["values"], strict=False):
            assert len(row) == len(found["tokens"])
            # Both are sums in float64 of the same float32 products.
            assert sum(row) == pytest.approx(total, abs=1e-12)


LIES = {
    "a key that is missing": lambda found: found["model"].pop("width"),
    "a key of another kind": lambda found: found["lenses"][0].update(extra=1),
    "a number written as text": lambda found: found["target"].update(probability="0.5"),
    "a flag in place of a number": lambda found: found["lenses"][0].update(seconds=True),
    "a verdict that does not exist": lambda found: found["lenses"][1]["additivity"].update(verdict="fine"),
    "positions of a lens that has none": lambda found: found["lenses"][0].update(positions=[[0.0]]),
    "an onset that is no depth": lambda found: found["onsets"]["definitions"][0].update(depth=1.5),
    "an onset by a definition that does not exist": lambda found: found["onsets"]["definitions"][0].update(
        name="soon"
    ),
    "one bad value in a list": lambda found: found["lenses"][2]["values"].__setitem__(1, "x"),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_check_of_the_shape_notices_a_lie(lie, found):
    LIES[lie](found)
    assert len(faults(found, COMPARISON)) == 1


@pytest.mark.parametrize("text", ["[NaN]", "[Infinity]", "[-Infinity]"])
def test_a_number_that_json_does_not_have_is_noticed(text):
    with pytest.raises(AssertionError, match="is no JSON"):
        parsed(text)


OPTIONS = [
    # (options, the lens's part of the JSON to look at, what it has to be)
    (("--baseline", "mean"), lambda lens: lens["options"]["baseline"], "mean"),
    (("--baseline", "end-of-text"), lambda lens: lens["options"]["baseline"], "end-of-text"),
    (("--baseline", "corpus"), lambda lens: lens["options"]["baseline"], "corpus"),
    (("--depths", "0,2"), lambda lens: lens["depths"], [2, 3]),
    ((), lambda lens: lens["options"], {"estimator": "observed", "baseline": "embedding"}),
    (("--lens", "ig-lens"), lambda lens: lens["name"], "ig-lens"),
    (("--halves",), lambda lens: lens["options"]["halves"], True),
    (("--halves", "--depths", "0,2"), lambda lens: [len(pair) for pair in lens["halves"]], [2, 2]),
]


@pytest.mark.parametrize(("options", "part", "expected"), OPTIONS)
def test_an_option_reaches_the_lens(options, part, expected, run):
    (lens,) = parsed(run(*asked("w3 w17", "llama", "--format", "json", *options))[1])["lenses"]
    assert part(lens) == expected


def test_position_counts_from_either_end(run):
    first, last = (
        parsed(run(*asked("w3 w17 w9", "llama", "--format", "json", f"--position={place}"))[1])["target"]
        for place in (0, -3)
    )
    assert first == last
    assert first["position"] == 0


def test_output_writes_what_would_be_printed_into_a_file(run, tmp_path):
    status, out, err = run(*asked("w3", "llama", "--format", "json", "--output", str(tmp_path / "a.json")))
    assert (status, out, err) == (0, "", "")
    assert faults(parsed((tmp_path / "a.json").read_text(encoding="utf-8")), COMPARISON) == []
    run(*asked("w3", "llama", "--output", str(tmp_path / "a.txt")))
    assert "ig-lens" in (tmp_path / "a.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", ["table", "json"])
def test_a_terminal_without_the_characters_loses_no_number(format, run, monkeypatch):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    assert run(*asked(tiny.PROMPT, "llama", "--target", "w5", "--format", format))[0] == 0
    narrow.flush()
    out = narrow.buffer.getvalue().decode("ascii")
    assert "8.66%" in out if format == "table" else faults(parsed(out), COMPARISON) == []


COMMAND = str(Path(sys.executable).with_name("lenses"))


def process(*arguments, stdout=subprocess.PIPE, **options):
    """The installed command, without the settings that the tests and some machines make."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TRANSFORMERS_VERBOSITY", "PYTHONUNBUFFERED")}
    return subprocess.run(
        [COMMAND, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, env=kept,
        check=False, **options,
    )  # fmt: skip


def foreign(stderr: str) -> str:
    """What is no word of ours about work that takes long, which comes where a machine is slow."""
    ours = re.compile(r"[a-z][a-z0-9 .-]*(: \d+ of \d+)?")
    return "\n".join(line for line in stderr.splitlines() if not ours.fullmatch(line))


def test_a_process_puts_only_json_on_stdout_and_no_foreign_bars_on_stderr(folders):
    done = process(*asked("w", "tiny.gguf", "--format", "json"), cwd=folders)
    assert (done.returncode, foreign(done.stderr)) == (0, "")
    assert faults(parsed(done.stdout), COMPARISON) == []


@pytest.mark.parametrize(
    ("arguments", "status"), [(asked("w3", "pickle"), 1), (asked("w3", "llama", "--format", "xml"), 2)]
)
def test_a_process_ends_with_the_status_and_a_line_or_two(arguments, status, folders):
    done = process(*arguments, cwd=folders)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == status


def test_a_reader_that_goes_away_is_no_traceback(folders):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = process(*asked("w3", "llama", "--format", "json"), stdout=gone, cwd=folders)
    assert (done.returncode, foreign(done.stderr)) == (1, "")


@pytest.mark.real
def test_the_default_model_says_paris(run):
    cheap = ("--lens", "ig-lens", "--lens", "logit-lens", "--lens", "ig-lens")
    status, out, err = run("compare", "The capital of France is", *cheap, "--format", "json")
    assert (status, err) == (0, "")
    found = parsed(out)
    assert [lens["name"] for lens in found["lenses"]] == ["ig-lens", "logit-lens"]
    assert found["target"] == {"position": 4, "id": 7042, "text": " Paris",
                               "probability": pytest.approx(0.772532, abs=1e-5)}  # fmt: skip
    assert found["lenses"][0]["additivity"]["verdict"] == "exact"


def test_the_number_format_and_the_device_are_those_that_were_asked_for(run):
    for device, dtype in (("cpu", "bfloat16"), ("auto", "float64")):
        status, out, _ = run(
            *asked("w3 w17", "llama", "--device", device, "--dtype", dtype, "--format", "json")
        )
        assert status == 0
        assert parsed(out)["model"]["dtype"] == dtype


@pytest.mark.parametrize("command", ["compare", "map", "report", "validate", "fit-tuned-lens"])
def test_every_command_that_loads_a_model_takes_its_device_and_number_format(run, command):
    status, out, _ = run(command, "--help")
    assert status == 0
    assert "--device" in out
    assert "--dtype" in out
