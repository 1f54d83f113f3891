"""Lists held against skipped blocks: the drops are the model's, a run goes on, its files hold all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import transformers as hf

from lenses import batch, charts, prompts, registry, report, validation_words
from lenses.decoder import Decoder
from lenses.errors import BadOption, BadRun, LensesError
from lenses.measure import measure
from lenses.progress import finish
from lenses.question import ask
from lenses.target import Target
from lenses.tokens import visible
from lenses.validating import Skipped, Validated, validating
from lenses.validation import validate
from tests import naive, tiny
from tests.test_cli import _cache, folders, run  # noqa: F401
from tests.test_report import IMAGE, NASTY, Page

BLOCKS = 6
WORDS = [" ".join(f"w{3 + (k * 11 + j * 5) % 60}" for j in range(1 + k % 4)) for k in range(7)]
LIST = "prompt,target,group\n" + "".join(f"{word},,{'up' if k % 2 else ''}\n" for k, word in enumerate(WORDS))
KEYS = {
    "lens", "subset", "blocks", "spearman", "spearman_low", "spearman_high", "top1", "top3", "onset_test",
    "p_value", "prompts",
}  # fmt: skip


@pytest.fixture(scope="module")
def decoder():
    config = hf.LlamaConfig(**{**tiny.BASE, "num_hidden_layers": BLOCKS})
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config).float())
    return Decoder(model, tiny.tokenizer(), "six")


def made(decoder, folder: Path, text: str = LIST, names=None, **options) -> Validated:
    listed = prompts.read(text.encode(), "list.csv")
    lenses = [registry.get(name) for name in names or registry.quick()]
    return finish(validating(decoder, listed, lenses, folder, **options))


@pytest.fixture(scope="module")
def found(decoder, tmp_path_factory):
    return made(decoder, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    report.write_validation(folder, found)
    return folder


def test_the_drops_are_what_the_model_loses_when_a_blocks_last_state_goes_on_unchanged(decoder, found):
    """By the naive twin: at the target's position a block hands on what it was given, elsewhere its own."""
    row = found.validation.scores.prompts.iloc[3]
    ids = decoder.tokenizer(row["prompt"])["input_ids"]
    states = naive.states(decoder.model, ids)
    token = decoder.tokenizer(row["target"].strip())["input_ids"][-1]
    for block in range(BLOCKS):
        state = states[block + 1].clone()
        state[-1] = states[block][-1]
        left = float(naive.resumed(decoder.model, ids, block + 1, state).double().softmax(-1)[-1, token])
        drop = found.validation.scores.drops[3, block]
        assert row["probability"] - left == pytest.approx(drop, abs=1e-5)


def test_every_prompt_and_lens_is_there_with_two_controls(found):
    scores = found.validation.scores
    assert list(scores.titles) == [*registry.quick(), "random", "depth"]
    assert scores.values.shape == (len(scores.titles), len(WORDS), BLOCKS)
    assert scores.prompts["prompt"].tolist() == WORDS
    assert scores.groups == ["up"]
    np.testing.assert_array_equal(scores.values[-1], np.tile(np.arange(BLOCKS), (len(WORDS), 1)))


def test_a_lens_that_integrates_can_be_validated(decoder, tmp_path):
    found = made(decoder, tmp_path, "prompt\nw3 w17 w9\nw5 w6\n", ["conductance"])
    assert np.isfinite(found.validation.scores.values).all()


def test_lenses_that_do_not_score_every_block_are_refused_before_any_work(decoder, tmp_path):
    listed = prompts.read(LIST.encode(), "list.csv")
    with pytest.raises(BadOption, match="ig-lens has to score every block"):
        finish(validating(decoder, listed, [registry.get("ig-lens", depths=(2, 4))], tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_bad_row_is_a_failure_and_no_other_is_held_up(decoder, tmp_path):
    found = made(decoder, tmp_path, "prompt,target\nw3 w17,w5\nw9,nosuch\nw9 w8,w6\n")
    assert found.validation.scores.prompts["row"].tolist() == [1, 3]
    (failure,) = found.to_dict()["failures"]
    assert (failure["row"], failure["line"]) == (2, 3)
    assert "not in this model's vocabulary" in failure["reason"]
    assert "1 prompt could not be held" in " ".join(validation_words.sentences(found))


def test_a_list_of_which_nothing_is_left_ends_in_a_sentence(decoder, tmp_path):
    with pytest.raises(LensesError, match=r"no prompt of this list could be validated; .*nosuch"):
        made(decoder, tmp_path, "prompt,target\nw9,nosuch\n")


def test_a_run_that_was_stopped_goes_on_with_the_missing_rows_to_the_same_results(
    decoder, found, tmp_path, monkeypatch
):
    listed = prompts.read(LIST.encode(), "list.csv")
    lenses = [registry.get(name) for name in registry.quick()]
    folder = tmp_path / "run"
    work = validating(decoder, listed, lenses, folder, batch_size=2)
    while not list(folder.glob("parts/*.parquet")):
        next(work)
    work.close()
    with pytest.raises(BadRun, match="add --resume"):
        finish(validating(decoder, listed, lenses, folder, batch_size=2))
    asked, answer = [], batch._answer
    monkeypatch.setattr(
        batch, "_answer", lambda decoder, row, *more: asked.append(row.row) or answer(decoder, row, *more)
    )
    again = finish(validating(decoder, listed, lenses, folder, batch_size=2, resume=True))
    assert 0 < len(asked) < len(WORDS)
    np.testing.assert_allclose(again.validation.scores.drops, found.validation.scores.drops, atol=1e-5)
    assert again.validation.scores.prompts["row"].tolist() == list(range(1, len(WORDS) + 1))


def test_a_folder_of_a_report_is_no_folder_of_a_validation(decoder, tmp_path):
    listed = prompts.read(LIST.encode(), "list.csv")
    lenses = [registry.get(name) for name in registry.quick()]
    finish(report.making(decoder, listed, lenses, tmp_path))
    with pytest.raises(BadRun, match="can't be gone on with"):
        finish(validating(decoder, listed, lenses, tmp_path, resume=True))


def test_the_json_is_the_contracts_to_the_letter(written):
    found = json.loads((written / "validation.json").read_text(), parse_constant=pytest.fail)
    assert (found["schema"], found["ablation"]) == ("lenses.validation/1", "skip")
    assert found["settings"]["skipped at"] == "the target's own position"
    for row in found["rows"]:
        assert set(row) >= KEYS
        assert row["subset"] in {"all", "monotone", "non-monotone"}
        assert row["blocks"] in {"all", "without-first-two"}
    whole = [(row["subset"], row["blocks"]) for row in found["rows"] if row["lens"] == "ig-lens"]
    assert len(set(whole)) == len(whole) == 6
    assert found["model"]["name"] == "six"


def test_every_drop_is_in_the_parquet_file(written, found):
    frame = pd.read_parquet(written / "drops.parquet")
    assert frame.columns.tolist() == [
        "row", "id", "group", "prompt", "target", "probability", "monotone", "lens", "block", "score", "drop",
    ]  # fmt: skip
    scores = found.validation.scores
    assert len(frame) == len(scores.titles) * len(WORDS) * BLOCKS
    mine = frame[frame["lens"] == "dla"].pivot(index="row", columns="block", values="score")
    np.testing.assert_array_equal(mine.to_numpy(), scores.values[list(scores.titles).index("dla")])


@pytest.mark.parametrize("start", range(0, len(NASTY), len(WORDS)))
def test_no_text_of_a_user_is_markup_anywhere_in_the_page(found, written, tmp_path, start):
    texts = [NASTY[(start + k) % len(NASTY)] for k in range(len(WORDS))]
    scores = found.validation.scores
    frame = scores.prompts.assign(**dict.fromkeys(("prompt", "target", "group", "id"), texts))
    result = validate(replace(scores, prompts=frame))
    findings = replace(found.findings, model={**found.findings.model, "name": f"<b>{IMAGE}"})
    report.write_validation(tmp_path, Validated(findings, result))
    text = (tmp_path / "validation.html").read_text(encoding="utf-8")
    nasty, plain = Page(text), Page((written / "validation.html").read_text(encoding="utf-8"))
    assert set(nasty.tags) <= set(plain.tags)
    assert nasty.tags.count("script") == plain.tags.count("script")
    assert not [name for _, name, _ in nasty.attributes if name.startswith("on")]
    assert IMAGE in nasty.title
    assert "<img src=x" not in text
    assert "alert(1)</script>" not in text
    told = json.dumps([json.loads(data) for data in nasty.data.values()], ensure_ascii=False)
    assert all(json.dumps(visible(text), ensure_ascii=False)[1:-1] in told for text in texts)


def test_the_page_asks_no_network(written):
    found = Page((written / "validation.html").read_text(encoding="utf-8"))
    places = [value for _, name, value in found.attributes if name in ("src", "href", "action", "srcset")]
    assert places
    assert all(
        place.startswith(("#", "data:image/svg+xml;base64,", "data:image/png;base64,")) for place in places
    )


def test_the_charts_are_of_the_schema_and_hold_every_block(found):
    scores, rows = found.validation.scores, found.validation.rows
    for chart in (
        charts.forest(rows[rows["subset"] == "all"], "blocks"), charts.scatter(scores, "dla"),
        charts.blocks_map(scores), charts.blocks_map(scores, "ig-lens"),
        charts.recall(found.validation.curves, scores.titles),
    ):  # fmt: skip
        chart.to_dict()  # checks the schema
        assert charts.save(chart, "svg").startswith(b"<svg")
    (data,) = (d for d in charts.spec(charts.scatter(scores, "dla"))["datasets"].values() if "drop" in d[0])
    assert len(data) == len(WORDS) * BLOCKS


def test_the_command_writes_its_files_and_tells_in_sentences(run, tmp_path):  # noqa: F811
    path, out = tmp_path / "list.csv", tmp_path / "out"
    path.write_text(LIST)
    status, said, err = run("validate", str(path), "--model", "gpt2", "-o", str(out), "--lens", "dla")
    assert status == 0, err
    assert {file.name for file in out.iterdir()} >= set(report.VALIDATION_FILES)
    assert "7 prompts were asked of gpt2; in 7 of them every block was skipped in turn" in said
    assert "at the target's own position" in said
    assert "validation.html" in said
    lenses = {row["lens"] for row in json.loads((out / "validation.json").read_text())["rows"]}
    assert lenses == {"dla", "random", "depth"}
    assert run("validate", str(path), "--model", "gpt2", "-o", str(out), "--lens", "dla")[0] == 1
    assert run("validate", str(path), "--model", "gpt2", "-o", str(out), "--lens", "dla", "--resume")[0] == 0


WRONG = {
    "no such file": (["nosuch.csv", "-o", "out"], 1, "nosuch.csv: No such file"),
    "no output": (["LIST"], 2, "Missing option"),
    "an output that is a file": (["LIST", "-o", "LIST"], 1, "takes the name of a folder"),
    "an unknown lens": (["LIST", "-o", "out", "--lens", "x"], 1, "there is no lens 'x'"),
    "an unknown model": (["LIST", "-o", "out", "--model", "nosuch"], 1, "nosuch"),
    "a list of nothing": (["EMPTY", "-o", "out"], 1, "no row of it can be run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(case, run, folders, tmp_path):  # noqa: F811
    files = {"LIST": tmp_path / "list.csv", "EMPTY": tmp_path / "empty.csv"}
    files["LIST"].write_text(LIST)
    files["EMPTY"].write_text("prompt,target\n,x\n")
    arguments, expected, said = WRONG[case]
    model = [] if "--model" in arguments else ["--model", "gpt2"]
    status, out, err = run("validate", *(str(files.get(part, part)) for part in arguments), *model)
    assert (status, out) == (expected, "")
    assert said in err
    assert "Traceback" not in err
    assert not (folders / "out").exists()


def test_a_target_of_several_tokens_loses_its_joint_probability(decoder):
    asked = ask(decoder, "w3 w17 w9", target="w5 w6")
    assert asked.target == Target(2, 5, (6,))
    drops = Skipped().attribute(decoder, asked.trace, asked.target).values
    before = measure(decoder, asked.trace, asked.target, "probability").levels([BLOCKS - 1]).values[0]
    # Without the last block stands what is read before it.
    assert asked.probability - drops[-1] == pytest.approx(before, abs=1e-6)
