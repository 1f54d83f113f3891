"""The report page: lists in, runs that are left and gone on with, findings and files out."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import shutil
import time
import weakref
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from lenses import prompts, registry, report
from lenses.errors import BadRun
from lenses.progress import finish
from lenses.store import Store
from lenses.ui import models, runs
from lenses.ui.models import choice_of, held
from lenses.ui.runs import ACTIVE, queue
from tests import tiny
from tests.ui.pages import HOME, app, charts, headline, settle, texts

LIST = "prompt,target,group\nw3 w17 w9,w5,up\nw41 w22 w8,,down\nw9,,up\nw3,nosuch,down\n,x,\nw7 w8 w9 w11,,\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


@pytest.fixture(autouse=True)
def _runs(tmp_path, monkeypatch, fresh):
    """A place for runs and a store of results of the test's own."""
    monkeypatch.setenv("LENSES_RUNS", str(tmp_path / "runs"))


def opened(folder: str, **query: str) -> AppTest:
    return settle(app("report", **{"model": folder, **query}))


def upload(at: AppTest, data: str | bytes = LIST, name: str = "list.csv") -> AppTest:
    data = data.encode() if isinstance(data, str) else data
    at.file_uploader[0].set_value((name, data, "text/csv"))
    return settle(at)


def button(at: AppTest, key: str):
    return next(button for button in at.button if button.key == key)


def press(at: AppTest, key: str) -> AppTest:
    button(at, key).click()
    return settle(at)


def table(at: AppTest, column: str) -> pd.DataFrame:
    return next(frame.value for frame in at.dataframe if column in frame.value)


def test_a_list_is_shown_as_it_was_read_before_anything_runs(folder):
    at = upload(opened(folder), "prompt;target\nw3 w17; w5\nw9;\n".encode("utf-8-sig"))
    assert (
        "list.csv: CSV, UTF-8 with BOM, semicolons, header in line 1, columns prompt, target: 2 rows"
        in texts(at)
    )
    preview = table(at, "prompt")
    assert preview["target"].tolist() == ["␣w5", ""]
    assert button(at, "run-list").label == "Run 2 prompts"
    assert "It will take about 1 s" in texts(at)
    stored = io.BytesIO()
    pd.DataFrame({"prompt": ["w3", "w5", "w7"]}).to_parquet(stored)
    assert button(upload(at, stored.getvalue(), "list.parquet"), "run-list").label == "Run 3 prompts"


def test_rows_that_cant_be_run_are_said_and_the_others_offered(folder):
    at = upload(opened(folder))
    assert "line 6 has no prompt" in texts(at)
    assert button(at, "run-list").label == "Run 5 prompts"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "list.csv is empty"),
        (b"text\na\n", "has no column 'prompt'"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is a PNG picture"),
        (b"prompt\n\n\n", "no"),
    ],
)
def test_a_file_that_is_no_list_is_a_sentence_and_the_page_goes_on(folder, data, said):
    at = upload(opened(folder), data)
    assert said in texts(at)
    assert button(upload(at), "run-list").label == "Run 5 prompts"


def test_a_list_can_be_read_differently(folder):
    at = upload(opened(folder), "prompt,text\nw3,w5 w6\n")
    at.selectbox(key="list_prompt").set_value("text")
    at = settle(at)
    assert table(at, "prompt")["prompt"].tolist() == ["w5 w6"]
    at.selectbox(key="list_delimiter").set_value("semicolon")
    assert "has no column" in texts(settle(at))
    at = upload(at)  # another list: nothing of that holds for it
    assert button(at, "run-list").label == "Run 5 prompts"


def test_a_run_ends_in_the_librarys_own_report(folder, tmp_path, downloads):
    at = press(upload(opened(folder)), "run-list")
    said = texts(at)
    assert "6 prompts were asked of gpt2; 4 could be explained, and 2 prompts could not" in said
    assert "IG-Lens adds up exactly in 4 of 4 prompts" in said
    assert len(charts(at)) == 2 + 3 + 1  # onsets, overall and by group; three methods; agreement
    found = json.loads(downloads["report.json"])
    decoder = held(choice_of(folder)).decoder
    mine = finish(
        report.making(
            decoder, prompts.read(LIST.encode(), "list.csv"),
            [registry.get(name) for name in registry.quick()], tmp_path / "mine",
        )
    )  # fmt: skip
    theirs = pd.read_csv(io.BytesIO(downloads["summary.csv"]))
    assert theirs["probability"].to_numpy() == pytest.approx(
        mine.rows["probability"].to_numpy(), abs=1e-5, nan_ok=True
    )
    assert found["provenance"]["settings"]["file"]["name"] == "list.csv"
    assert b"<title>6 prompts through" in downloads["The report as one HTML file"]
    with zipfile.ZipFile(io.BytesIO(downloads["All as ZIP"])) as archive:
        assert archive.namelist() == list(report.FILES)
        assert archive.read("summary.csv") == downloads["summary.csv"]


def test_moving_a_widget_keeps_the_list_and_the_findings(folder):
    at = press(upload(opened(folder)), "run-list")
    at.segmented_control(key="report_rows").set_value("Lowest probability")
    at = settle(at)
    assert "6 prompts were asked" in texts(at)
    lowest = table(at, "verdict")
    assert lowest["probability"].is_monotonic_increasing
    at.segmented_control(key="report_rows").set_value("Failures")
    failures = table(settle(at), "failure")
    assert failures["failure"].str.contains("not in this model's vocabulary|no prompt").all()


def test_the_same_list_again_is_not_computed_again(folder, monkeypatch):
    press(upload(opened(folder)), "run-list")
    queue().results.drop(next(key for key in list(queue().results._kept) if key[0] == "run"))
    monkeypatch.setattr("lenses.batch._asked", lambda *_: pytest.fail("a row was computed again"))
    at = opened(folder)
    monkeypatch.setattr("lenses.ui.report.cost", lambda *_: None)
    at = press(upload(at, name="renamed.csv"), "run-list")
    assert "6 prompts were asked of gpt2" in texts(at)


def test_a_run_that_is_stopped_can_be_reported_and_gone_on_with(folder, monkeypatch):
    monkeypatch.setattr("lenses.ui.runs.BATCH", 1)
    kept = []
    keep = Store.keep

    def some(self, outcomes):
        kept.append(len(outcomes))
        if len(kept) == 3:
            raise BadRun("the lights went out")
        keep(self, outcomes)

    monkeypatch.setattr(Store, "keep", some)
    at = press(upload(opened(folder)), "run-list")
    assert "the lights went out" in texts(at)  # a failure keeps what is done, too
    at.session_state[ACTIVE] = replace(at.session_state[ACTIVE], stopped=True)  # as its button does
    at = settle(at)
    assert "what is done is kept" in texts(at)
    at = press(at, "partial-report_run")
    assert "The run was stopped" in texts(at)
    assert "were not reached" in texts(at)
    button(at, "resume-report_run").click()
    at.run()
    at = press(at, "retry-report_run")
    assert "6 prompts were asked of gpt2; 4 could be explained" in texts(at)
    assert "not reached" not in texts(at)


def test_a_saved_report_opens_again_from_its_file_or_its_folder(folder, downloads):
    press(upload(opened(folder)), "run-list")
    data = downloads["report.json"]
    for place in (0, 1):
        at = opened(folder)
        at.segmented_control(key="report_what").set_value("Open a saved one")
        at = settle(at)
        file = ("out/report.json", data, "application/json")
        at.file_uploader[place].set_value(file if place == 0 else [file])
        at = settle(at)
        assert "6 prompts were asked of gpt2" in texts(at)
        assert json.loads(downloads["report.json"])["comparisons"] == json.loads(data)["comparisons"]


def test_what_is_no_report_is_refused_in_a_sentence(folder):
    at = opened(folder)
    at.segmented_control(key="report_what").set_value("Open a saved one")
    at = settle(at)
    at.file_uploader[0].set_value(("report.json", b"{}", "application/json"))
    assert "can't be opened as a report" in texts(settle(at))


def test_every_bundled_list_is_offered_and_read_without_a_note():
    found = sorted((HOME / "assets" / "prompts").glob("*.csv"))
    assert {path.stem for path in found} == {
        "arithmetic", "code", "copying", "facts", "multilingual", "opposites"
    }  # fmt: skip
    for path in found:
        listed = prompts.read(path.read_bytes(), path.name)
        assert not listed.bad
        assert not listed.notes
        assert len({row.id for row in listed.rows}) == len(listed.rows)
        assert all(row.target and row.group for row in listed.rows)
    assert len(prompts.read(found[3].read_bytes(), "facts.csv").rows) == 200


def test_a_bundled_list_is_chosen_by_its_name(folder):
    at = opened(folder)
    at.selectbox(key="list_example").set_value("code.csv")
    at = settle(at)
    assert "code.csv: CSV, UTF-8, commas" in texts(at)


def test_no_method_and_no_good_row_are_said(folder):
    at = upload(opened(folder), "prompt,target\n,w5\n")
    assert "no row of this list can be run" in texts(at)
    at = upload(at)
    at.pills(key="report_lenses").set_value([])
    assert "choose at least one method" in texts(settle(at))


def test_text_of_a_list_is_shown_verbatim(folder):
    nasty = '"""><img src=x onerror=alert(1)>"'
    at = press(
        upload(opened(folder), f"prompt,group\n{nasty},$5 **x** :smile:\n", "<b>x</b>.csv"), "run-list"
    )
    assert not any("<img" in element.proto.body for element in at.html)
    assert "<b>x</b>.csv" in texts(at)
    assert table(at, "verdict")["prompt"].tolist() == ['"><img src=x onerror=alert(1)>']


def test_the_headline_of_a_chosen_row_is_that_of_its_prompt(folder, monkeypatch):
    at = press(upload(opened(folder)), "run-list")
    monkeypatch.setattr(st, "dataframe", _choosing(st.dataframe))
    assert "after “w3 w17 w9”" in headline(settle(at))


def _choosing(draw):
    """A table of which the first row is chosen."""

    def dataframe(*args, **options):
        event = draw(*args, **options)
        chosen = SimpleNamespace(selection=SimpleNamespace(rows=[0]))
        return chosen if options.get("on_select") == "rerun" else event

    return dataframe


def test_old_runs_are_deleted_and_nothing_else_is(tmp_path):
    week = 8 * 24 * 3600
    home = tmp_path / "runs"
    old, new, mine, theirs = home / ("a" * 24), home / ("b" * 24), home / ("c" * 24), home / "somebody's own"
    for folder in (old, new, mine, theirs):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (home / ("d" * 24)).symlink_to(theirs)
    for folder in (old, mine, theirs):
        for path in (folder / "run.json", folder):
            os.utime(path, (time.time() - week, time.time() - week))
    runs._forget_old(mine)
    assert {path.name[:1] for path in home.iterdir()} == {"b", "c", "d", "s"}


def test_a_report_stays_whatever_else_is_chosen(folder):
    at = press(upload(opened(folder)), "run-list")
    at.session_state["ig-lens.depths"] = "1"  # as the page Compare would leave it
    at = settle(at)
    assert "IG-Lens adds up exactly in 4 of 4 prompts" in texts(at)
    assert "With IG-Lens: depths 1." in texts(at)
    assert button(at, "run-list").label == "Run 5 prompts"
    at = upload(at, "prompt\nw3\n", "other.csv")
    assert "list.csv, 6 prompts" in texts(at)
    assert button(at, "run-list").label == "Run 1 prompt"
    at = press(at, "run-list")
    assert "other.csv, 1 prompt" in texts(at)


def test_visitors_with_the_same_content_share_what_was_computed_and_no_file(folder, downloads):
    mine = press(upload(opened(folder), name="mine.csv"), "run-list")
    theirs = press(upload(opened(folder), name="theirs.csv"), "run-list")
    assert b"theirs.csv" in downloads["report.json"]
    settle(mine)
    assert b"mine.csv" in downloads["report.json"]
    assert b"theirs.csv" not in downloads["report.json"]
    assert mine.session_state[ACTIVE].folder == theirs.session_state[ACTIVE].folder


def test_each_report_of_what_is_done_is_made_anew(folder, monkeypatch):
    monkeypatch.setattr("lenses.ui.runs.BATCH", 1)
    keep, kept = Store.keep, []

    def two(self, outcomes):
        kept.append(len(outcomes))
        if len(kept) % 3 == 0:
            raise BadRun("enough for now")
        keep(self, outcomes)

    monkeypatch.setattr(Store, "keep", two)
    at, told = press(upload(opened(folder)), "run-list"), []
    for _ in range(2):
        at.session_state[ACTIVE] = replace(at.session_state[ACTIVE], stopped=True, partial="")
        at = press(settle(at), "partial-report_run")
        told.append(int(re.search(r"; (\d) could be explained", texts(at))[1]))
        button(at, "resume-report_run").click()
        at.run()
        at = press(at, "retry-report_run")
    assert told[0] < told[1]


def test_the_hosts_limit_of_tokens_holds_for_lists(folder, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", "3")
    at = press(upload(opened(folder)), "run-list")
    assert "6 prompts were asked of gpt2; 3 could be explained" in texts(at)
    at.segmented_control(key="report_rows").set_value("Failures")
    assert table(settle(at), "failure")["failure"].str.contains("at most 3 are taken here").any()


def test_the_hosts_limit_of_rows_is_a_sentence_before_anything_runs(folder, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_ROWS", "3")
    at = upload(opened(folder), LIST.replace("w3", "w5"))  # a list that no other test has read
    assert "rows and this page takes 3: leave some out" in texts(at)
    assert not [b for b in at.button if b.key == "run-list"]


def test_a_run_that_finds_no_place_in_line_says_so_and_can_be_asked_for_again(folder, monkeypatch):
    at = upload(opened(folder))
    monkeypatch.setattr(queue(), "_most", 0)
    at = press(at, "run-list")
    assert "0 are in line already and no more are taken: try again in a while" in texts(at)
    monkeypatch.setattr(queue(), "_most", 1)
    at = press(at, "retry-report_run")
    assert "6 prompts were asked of gpt2" in texts(at)


def test_a_report_of_a_list_with_ablation_says_how_well_the_methods_rank_the_blocks(folder):
    at = upload(opened(folder))
    at.pills(key="report_lenses").set_value(["ig-lens", "ablation"])
    at = press(settle(at), "run-list")
    assert "Do the methods find the blocks that matter?" in [title.value for title in at.subheader]
    assert "IG-Lens: ρ = " in texts(at)


def test_a_report_whose_files_are_gone_says_so_and_can_be_made_again(folder):
    at = press(upload(opened(folder)), "run-list")
    shutil.rmtree(at.session_state[ACTIVE].folder)
    at.run()
    assert "were deleted after a week without use" in texts(at)
    at = press(settle(at), "run-list")
    assert "6 prompts were asked of gpt2" in texts(at)


def test_a_folder_that_cannot_be_written_is_the_hosts_to_mend(folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LENSES_RUNS", str(tmp_path / "file" / "runs"))
    at = press(upload(opened(folder)), "run-list")
    assert "the host of this page sets the folder by LENSES_RUNS" in texts(at)


def test_a_run_that_is_done_is_never_computed_again(folder):
    at = press(upload(opened(folder)), "run-list")
    assert at.session_state[ACTIVE].work is None


def test_no_run_keeps_its_model_in_memory_and_one_goes_on_when_it_is_loaded_again(
    folder, tmp_path, monkeypatch
):
    # Stopped, failed, or finished while its visitor was elsewhere: the model goes when another comes.
    kept, keep = [], Store.keep

    def some(self, outcomes):
        kept.append(len(outcomes))
        if len(kept) == 2:
            raise BadRun("the lights went out")
        keep(self, outcomes)

    monkeypatch.setattr("lenses.ui.runs.BATCH", 1)
    monkeypatch.setattr(Store, "keep", some)
    at = press(upload(opened(folder)), "run-list")
    assert "the lights went out" in texts(at)
    choice = choice_of(folder)
    gone = weakref.ref(held(choice).decoder)
    other = choice_of(str(tiny.save("llama", tmp_path / "llama")))
    models.want("another visitor", other)
    assert models.loader().idle(60.0)
    gc.collect()
    assert (held(choice), gone()) == (None, None)
    _, work = replace(at.session_state[ACTIVE], stopped=False).wanted
    with pytest.raises(BadRun, match="gpt2 had to make room for another model meanwhile"):
        finish(work())
    at = settle(at)  # the page sees to it that its model comes back
    assert held(choice) is not None
    assert "6 prompts were asked of gpt2" in texts(press(at, "retry-report_run"))
