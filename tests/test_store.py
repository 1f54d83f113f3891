"""A run's folder: what is done is kept, also by force, and goes on only with what was asked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import lenses
from lenses import batch, prompts, registry, report
from lenses.errors import BadRun
from lenses.findings import NOT_RUN
from lenses.progress import Progress, finish
from lenses.report.making import computing
from lenses.store import Store, settings
from tests import tiny

LENSES = str(Path(sys.executable).parent / "lenses")
LIST = "prompt,target,group,note\n" + "".join(
    f"{' '.join(f'w{3 + (k * 7 + j) % 60}' for j in range(1 + k % 5))},{['', 'w5'][k % 2]},g{k % 3},n{k}\n"
    for k in range(24)
)


def listed(text: str = LIST, name: str = "list.csv") -> prompts.PromptList:
    return prompts.read(text.encode(), name)


def asked(family: str = "gpt2", found: prompts.PromptList | None = None, names=("ig-lens", "dla"), **options):
    decoder, found = tiny.decoder(family), found or listed()
    chosen = [registry.get(name, **options) if name == "ig-lens" else registry.get(name) for name in names]
    return decoder, found, chosen


def run(folder, decoder, found, chosen, stop_after: int = 10**6, resume: bool = False, batch_size: int = 4):
    """Compute the rows, all or until so many parts are there."""
    with Store(folder, settings(decoder, found, chosen), found.rows) as store:
        for _ in computing(decoder, store, chosen, resume=resume, batch_size=batch_size):
            if len(list((folder / "parts").iterdir())) >= stop_after:
                return


def computed(folder) -> list[int]:
    """The rows that the parts hold."""
    return [
        row for path in (folder / "parts").glob("*.parquet") for row in pq.read_table(path)["row"].to_pylist()
    ]


def test_a_run_that_is_given_up_goes_on_with_what_is_missing(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(report.making(*asked(), whole, batch_size=4))
    run(cut, *asked(), stop_after=3)
    assert len(computed(cut)) == 12
    finish(report.making(*asked(), cut, batch_size=4, resume=True))
    assert Counter(computed(cut)) == Counter(range(1, 25))  # each row once
    assert (cut / "summary.csv").read_bytes() == (whole / "summary.csv").read_bytes()
    assert pq.read_table(cut / "results.parquet").equals(pq.read_table(whole / "results.parquet"))


def test_a_run_may_go_on_in_other_batches(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(report.making(*asked(), whole, batch_size=4))
    run(cut, *asked(), stop_after=3)
    finish(report.making(*asked(), cut, batch_size=5, resume=True))
    assert Counter(computed(cut)) == Counter(range(1, 25))
    assert_same_summary(cut, whole)
    assert_same_results(cut, whole)


def assert_same_summary(one, other):
    left, right = (pd.read_csv(folder / "summary.csv", keep_default_na=False) for folder in (one, other))
    numbers = ["probability", "delta", "gap"]
    assert left.drop(columns=numbers).equals(right.drop(columns=numbers))
    assert (left[numbers] - right[numbers]).abs().to_numpy().max() <= 1e-5


def assert_same_results(one, other):
    left, right = (pq.read_table(folder / "results.parquet").to_pandas() for folder in (one, other))
    assert left.drop(columns="value").equals(right.drop(columns="value"))
    assert (left["value"] - right["value"]).abs().max() <= 1e-4  # other batches, other rounding; logits too


def test_a_process_that_is_killed_loses_the_batch_in_flight_and_nothing_else(tmp_path):
    path, out, whole = tmp_path / "list.csv", tmp_path / "out", tmp_path / "whole"
    path.write_text(LIST + LIST.partition("\n")[2])
    model = str(tiny.save("llama", tmp_path / "model"))
    command = [LENSES, "report", str(path), "--model", model, "--batch-size", "1", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(list((out / "parts").glob("*.parquet"))) < 19:  # 40 % of 48 batches
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = computed(out)
    assert not (out / "report.html").exists()
    assert 19 <= len(done) < 48
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    assert Counter(computed(out)) == Counter(range(1, 49))
    decoder, found = lenses.load(model), prompts.read(path.read_bytes(), path.name)
    have = registry.having(decoder, registry.quick())
    finish(report.making(decoder, found, [registry.get(name) for name in have], whole))
    assert_same_summary(out, whole)
    assert_same_results(out, whole)


CHANGES = {
    "another list": lambda: asked(found=listed(LIST.replace("w5", "w6"))),
    "another way of reading it": lambda: asked(
        found=prompts.read(LIST.encode(), "list.csv", prompts.Manner(target="note"))
    ),
    "another model": lambda: asked("llama"),
    "another lens": lambda: asked(names=("ig-lens", "logit-lens")),
    "another option": lambda: asked(baseline="zero"),
}
NAMED = {
    "another list": "sha256", "another way of reading it": "target", "another model": "model name",
    "another lens": "lenses dla", "another option": "baseline",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_does_not_go_on_with_something_else_and_says_what_differs(change, tmp_path):
    run(tmp_path, *asked(), stop_after=2)
    before = computed(tmp_path)
    with pytest.raises(BadRun, match=NAMED[change]):
        run(tmp_path, *CHANGES[change](), resume=True)
    assert computed(tmp_path) == before


def test_the_name_of_the_file_may_change(tmp_path):
    run(tmp_path, *asked(), stop_after=2)
    run(tmp_path, *asked(found=listed(name="renamed.csv")), resume=True)
    assert Counter(computed(tmp_path)) == Counter(range(1, 25))


def test_a_finished_run_is_not_overwritten_and_resuming_it_computes_nothing(tmp_path, monkeypatch):
    run(tmp_path, *asked())
    with pytest.raises(BadRun, match="already holds a run"):
        run(tmp_path, *asked())
    monkeypatch.setattr(batch, "_asked", lambda *_: pytest.fail("a row was computed again"))
    run(tmp_path, *asked(), resume=True)


def test_two_runs_at_once_do_not_write_into_one_folder(tmp_path):
    work = report.making(*asked(), tmp_path)
    next(work)
    with pytest.raises(BadRun, match="another process"):
        run(tmp_path, *asked(), resume=True)
    work.close()
    run(tmp_path, *asked(), resume=True)


@pytest.mark.parametrize("harm", [b"", b"PAR1 no"])
def test_a_part_that_was_damaged_is_named(harm, tmp_path):
    run(tmp_path, *asked(), stop_after=2)
    part = next((tmp_path / "parts").glob("*.parquet"))
    part.write_bytes(harm)
    with pytest.raises(BadRun, match="delete it"):
        run(tmp_path, *asked(), resume=True)
    part.unlink()
    run(tmp_path, *asked(), resume=True)
    assert Counter(computed(tmp_path)) == Counter(range(1, 25))


def test_a_passing_fault_is_tried_again_and_another_failure_is_not(tmp_path, monkeypatch):
    what = asked(found=listed(LIST + "w3,nosuch,g,n\n"))

    def out_of_memory(*_):
        raise MemoryError

    with monkeypatch.context() as now:
        now.setattr(batch, "_asked", out_of_memory)
        run(tmp_path, *what, stop_after=2)
    tried = Counter(computed(tmp_path))
    assert tried.pop(25) == 1  # its word is not in the vocabulary, which is seen before anything runs
    assert sum(tried.values()) == 4
    run(tmp_path, *what, resume=True)
    assert all(one.comparison for one in list(Store(tmp_path, settings(*what), what[1].rows).outcomes())[:24])
    assert Counter(computed(tmp_path)) == Counter(range(1, 26)) + tried
    run(tmp_path, *what, resume=True)
    assert Counter(computed(tmp_path)) == Counter(range(1, 26)) + tried


def test_parts_of_an_unknown_run_are_not_taken_for_ones_own(tmp_path):
    run(tmp_path, *asked(), stop_after=2)
    (tmp_path / "run.json").unlink()
    with pytest.raises(BadRun, match=r"whose run\.json is gone"):
        run(tmp_path, *asked(found=listed(LIST.replace("w5", "w6"))))


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": "lenses.run/1"}', '{"schema": "lenses.run/9"}', "[1]"]
)
def test_a_folder_whose_settings_cant_be_read_is_refused(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadRun, match="can't be read"):
        run(tmp_path, *asked(), resume=True)


def test_rows_that_were_not_reached_say_so(tmp_path):
    what = asked()
    run(tmp_path, *what, stop_after=3)
    store = Store(tmp_path, settings(*what), what[1].rows)
    outcomes = list(store.outcomes())
    assert [one.row for one in outcomes] == list(what[1].rows)  # the list's order, every row
    missing = [one for one in outcomes if one.failure == NOT_RUN]
    assert len(missing) == 24 - len(computed(tmp_path))
    assert store.one(missing[0].row.row).failure == NOT_RUN
    found = report.write(tmp_path, store)
    assert f"{len(missing)} prompts were not reached" in " ".join(
        json.loads((tmp_path / "report.json").read_text())["summary"]["sentences"]
    )
    assert len(found.rows) == 24


def test_what_is_kept_is_what_was_computed(tmp_path):
    decoder, found, chosen = what = asked()
    with Store(tmp_path, settings(*what), found.rows) as store:
        store.begin(resume=False)
        made = {}
        for step in batch.running(decoder, found.rows, chosen):
            if not isinstance(step, Progress):
                store.keep(step)
                made |= {one.row.row: one for one in step}
        for one in store.outcomes():
            assert one.comparison.to_dict() == made[one.row.row].comparison.to_dict()
            assert store.one(one.row.row).comparison.to_dict() == one.comparison.to_dict()


def test_windows_keep_the_lists_order(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "WINDOW", 5)
    what = asked()
    run(tmp_path, *what, batch_size=2)
    report.write(tmp_path, Store(tmp_path, settings(*what), what[1].rows))
    lines = (tmp_path / "summary.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == [str(k) for k in range(1, 25)]
    assert len(list((tmp_path / "parts").glob("000004-*.parquet"))) == 2  # rows 21 to 24


def test_a_list_without_a_row_that_can_be_run_is_refused():
    found = listed("prompt,target\n,x\n,y\n")
    with pytest.raises(lenses.LensesError, match="no row of it can be run; line 2 has no prompt"):
        report.readable(found)
    assert report.readable(replace(found, rows=listed().rows)).good


def test_an_estimate_is_a_number_of_seconds_that_grows_with_the_list():
    decoder, found, chosen = asked()
    short = finish(report.estimating(decoder, found.rows[:4], chosen))
    long = finish(report.estimating(decoder, found.rows * 1000, chosen))
    assert 0 < short < long
    assert finish(report.estimating(decoder, [], chosen)) == 0
