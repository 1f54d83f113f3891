"""The validate page: a list in, every block skipped in the background, findings and files out."""

from __future__ import annotations

import json

import pytest

from lenses.report import VALIDATION_FILES
from tests import tiny
from tests.ui.pages import app, charts, rows, settle, texts
from tests.ui.test_report_page import button, press, upload

LIST = "prompt,target,group\nw3 w17 w9,w5,up\nw41 w22 w8,,down\nw9,,up\nw3,nosuch,down\nw7 w8 w9 w11,,\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


@pytest.fixture(autouse=True)
def _runs(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("LENSES_RUNS", str(tmp_path / "runs"))


def opened(folder: str):
    return settle(app("validate", model=folder))


def test_a_run_ends_in_findings_charts_and_files(folder, downloads):
    at = upload(opened(folder), LIST)
    assert button(at, "validate-list").label == "Run 5 prompts"
    assert "It will take about" in texts(at)
    at = press(at, "validate-list")
    said = texts(at)
    assert "5 prompts were asked of gpt2; in 4 of them every block was skipped in turn" in said
    assert "1 prompt could not be held against anything" in said
    assert "Two controls know nothing of a prompt" in said
    # forests, scatter, precision and recall, two maps, and the planted models
    assert len(charts(at)) == 2 + 1 + 1 + 2 + 1
    found = json.loads(downloads["validation.json"])
    assert found["schema"] == "lenses.validation/1"
    assert {*VALIDATION_FILES[1:], "The validation as one HTML file", "All as ZIP"} <= set(downloads)
    assert not [b for b in at.button if b.key == "validate-list"]


def test_a_list_of_which_nothing_is_left_is_a_sentence(folder):
    at = press(upload(opened(folder), "prompt,target\nw3,nosuch\n"), "validate-list")
    assert "no prompt of this list could be validated" in texts(at)


def test_a_page_without_methods_asks_for_one(folder):
    at = upload(opened(folder), LIST)
    at.get("button_group")[0].set_value([])
    assert "choose at least one method" in texts(settle(at))


def test_the_planted_models_are_there_before_any_run(folder):
    at = opened(folder)
    assert "Where the truth is known" in [title.value for title in at.subheader]
    assert len(charts(at)) == 1
    shown = rows(at, 0, "shown").set_index(["lens", "variant"])["shown"]
    # What IG-Lens must miss is shown like what it finds.
    assert (shown["ig-lens", "single"], shown["ig-lens", "hidden"]) == ("100%", "0%")
    assert shown["tuned-lens", "single"] == "–"
