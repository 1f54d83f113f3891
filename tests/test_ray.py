"""Prompt lists on Ray: the same outcomes as on one machine, whichever worker dies, wherever it stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lenses
from lenses import aggregates, parts, prompts, registry, report
from lenses.errors import BadOption, BadPromptFile, BadRun, LensesError, UnknownModel
from lenses.findings import COLUMNS, gathered
from lenses.methods.ig_lens import IGLens
from lenses.progress import Progress, finish
from lenses.report.making import computing
from lenses.store import Store, settings
from lenses.summary import Summary
from tests import tiny

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'lensledger[ray]'")

from lenses.distributed import cluster, making, sources, totals, watching  # noqa: E402
from lenses.distributed import folder as folders  # noqa: E402
from lenses.distributed.board import Board, State  # noqa: E402
from lenses.distributed.folder import held  # noqa: E402
from lenses.distributed.making import Asked, running  # noqa: E402

COUNT = 40
LINES = [
    f"{' '.join(f'w{3 + (k * 7 + j) % 60}' for j in range(1 + k % 5))},{['', 'w5'][k % 2]},g{k % 3},n{k}"
    for k in range(COUNT - 2)
]
HEADER = "prompt,target,group,note"
LIST = "\n".join([HEADER, *LINES, "w3,nosuch,,", ",w5,,"]) + "\n"
"""The last two rows fail, each by its own fault."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny.save("llama", tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module", autouse=True)
def _session():
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    ray.init(
        num_cpus=2, configure_logging=False, log_to_driver=False, include_dashboard=False,
        _system_config={"worker_niceness": 0},  # else its processes wait for those of other tests
    )  # fmt: skip
    with cluster.joined(None):
        yield
    ray.shutdown()


def listed(text: str = LIST) -> prompts.PromptList:
    return prompts.read(text.encode(), "list.csv")


def asked(model: str, lists=None, names=("ig-lens", "dla"), **options) -> Asked:
    chosen = tuple(registry.get(name) if isinstance(name, str) else name for name in names)
    return Asked(lists or listed(), model, chosen, True, **{"workers": 2, "batch_size": 4, **options})


def local(folder: Path, model: str, found=None, resume: bool = False, names=("ig-lens", "dla")) -> Store:
    """The same list by this process."""
    decoder, found = lenses.load(model), found or listed()
    chosen = [registry.get(name) for name in names]
    with Store(folder, settings(decoder, found, chosen), found.rows) as store:
        for _ in computing(decoder, store, chosen, resume=resume, batch_size=4):
            pass
    return store


def computed(folder: Path) -> list[int]:
    """The rows that the parts hold."""
    return [
        row for path in (folder / "parts").glob("*.parquet") for row in pq.read_table(path)["row"].to_pylist()
    ]


def outcomes(folder: Path, found=None) -> list:
    return list(Store(folder, {}, (found or listed()).rows).outcomes())


def assert_same(some, others) -> None:
    """The same failures, and every value within the roundings of other batches."""
    assert [(one.row.row, one.failure) for one in some] == [(one.row.row, one.failure) for one in others]
    for one, other in zip(some, others, strict=True):
        if one.comparison is None:
            continue
        assert one.comparison.target == other.comparison.target
        assert abs(one.comparison.probability - other.comparison.probability) <= 1e-5
        for left, right in zip(one.comparison.results, other.comparison.results, strict=True):
            assert left.attribution.lens == right.attribution.lens
            assert np.abs(left.attribution.values - right.attribution.values).max() <= 1e-5


@pytest.fixture(scope="module")
def summed(model, tmp_path_factory) -> tuple[Path, Summary]:
    """The folder of a list that was run by two workers, and what it came to."""
    folder = tmp_path_factory.mktemp("ray")
    return folder, finish(making.making(asked(model), folder))


@pytest.fixture(scope="module")
def made(summed, model, tmp_path_factory) -> tuple[Path, Path]:
    """The folders of the same list by Ray and by this process."""
    here = tmp_path_factory.mktemp("here")
    local(here, model)
    return summed[0], here


def test_every_row_comes_out_as_on_one_machine_and_once(made):
    on_ray, here = made
    assert Counter(computed(on_ray)) == Counter(range(1, COUNT + 1))
    assert_same(outcomes(on_ray), outcomes(here))
    assert [one.row.row for one in outcomes(on_ray) if one.failure] == [COUNT - 1, COUNT]


def test_the_pages_numbers_are_those_of_one_machine(summed):
    on_ray, found = summed
    settings = json.loads((on_ray / "run.json").read_text())
    run = Store(on_ray, settings, listed().rows)
    expected = aggregates.summarized(gathered(settings, run.outcomes()))
    assert_summaries_agree(found, expected)
    off = replace(found, counts=replace(found.counts, probable=found.counts.probable + 1))
    with pytest.raises(AssertionError):
        assert_summaries_agree(off, expected)


def assert_summaries_agree(found, expected) -> None:
    """Everything that a page shows, exactly but for the order in which numbers are added up."""
    same = partial(pd.testing.assert_frame_equal, check_dtype=False, rtol=1e-12, atol=1e-15)
    for name in ("asked", "failed", "missing", "probable", "model", "settings"):
        assert getattr(found.counts, name) == getattr(expected.counts, name), name
    assert found.counts.whole == pytest.approx(expected.counts.whole, nan_ok=True)
    assert [lens.lens for lens in found.counts.lenses] == [lens.lens for lens in expected.counts.lenses]
    for one, other in zip(found.counts.lenses, expected.counts.lenses, strict=True):
        assert {k: n for k, n in one.verdicts.items() if n} == other.verdicts
        assert (one.prompts, one.options, one.unit) == (other.prompts, other.options, other.unit)
        assert (one.worst, one.median) == pytest.approx((other.worst, other.median), nan_ok=True)
        same(found.bands[one.lens], expected.bands[one.lens])
    assert (found.grouped, found.provenance) == (expected.grouped, expected.provenance)
    assert list(found.notable) == list(expected.notable)
    for why, frame in found.notable.items():
        same(frame, expected.notable[why].reset_index(drop=True))
    for name in ("onsets", "groups", "agreement"):
        same(getattr(found, name).reset_index(drop=True), getattr(expected, name).reset_index(drop=True))
    cells = [one.onset_groups.sort_values(["group", "depth"], ignore_index=True) for one in (found, expected)]
    same(*cells)
    for name in ("listed", "failures"):
        frames = [getattr(one, name)[list(COLUMNS)].reset_index(drop=True) for one in (found, expected)]
        same(*(frame.astype(object).where(frame.notna(), None) for frame in frames))


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["w3 w4 w5,,,", "w4 w5,w6,,"], ["dla"]),  # no failure, group, ledger, onset, or other method
        (["w3 w4 w5,nosuch,g,", "w4 w5,nosuch,,"], ["ig-lens", "dla"]),  # no row that is explained
    ],
)
def test_the_pages_numbers_are_those_of_one_machine_also_where_there_is_nothing_of_a_kind(
    lines, names, model, tmp_path
):
    found = listed("\n".join([HEADER, *lines]))
    run = local(tmp_path, model, found, names=names)
    with held(tmp_path) as (_, seen):
        rows = sources.of_list(found.rows, making.NONE, 1)
        summed = finish(totals.summary(totals.lines(rows, seen, run.settings)))
    assert_summaries_agree(summed, aggregates.summarized(gathered(run.settings, run.outcomes())))


def test_rows_that_no_part_holds_are_no_part_of_any_mean(made, tmp_path):
    shutil.copytree(made[1], tmp_path, dirs_exist_ok=True)
    next((tmp_path / "parts").iterdir()).unlink()
    settings = json.loads((tmp_path / "run.json").read_text())
    rows = sources.of_list(listed().rows, making.NONE, COUNT)
    with held(tmp_path) as (_, seen), pytest.raises(BadRun, match="are in no part any more"):
        finish(totals.summary(totals.lines(rows, seen, settings)))
    with pytest.raises(BadRun, match="doesn't see"), cluster.joined(None):
        totals.lines(rows, seen, settings)


def test_the_files_hold_every_row_and_value(made):
    on_ray, here = made
    assert (on_ray / "report.html").read_text().count('<tr id="row-') == COUNT
    summed = pd.read_parquet(on_ray / "summary").sort_values("row")
    assert summed["row"].tolist() == list(range(1, COUNT + 1))
    assert summed["note"].tolist()[:3] == ["n0", "n1", "n2"]
    report.write(here, Store(here, json.loads((here / "run.json").read_text()), listed().rows))
    keys = ["row", "lens", "depth"]
    left = pd.read_parquet(on_ray / "results").sort_values(keys, ignore_index=True)
    right = pd.read_parquet(here / "results.parquet").sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(left, right, check_dtype=False, rtol=0, atol=1e-5)


def test_the_check_sees_a_value_that_is_off(made):
    on_ray, here = outcomes(made[0]), outcomes(made[1])
    on_ray[3].comparison.results[0].attribution.values[1] += 2e-5
    with pytest.raises(AssertionError):
        assert_same(on_ray, here)


def test_a_run_goes_on_on_one_machine_and_the_other_way_round(made, model, tmp_path):
    on_ray, here = made
    before = sorted(path.name for path in (on_ray / "parts").iterdir())
    local(on_ray, model, resume=True)
    finish(running(asked(model), here, resume=True))
    assert sorted(path.name for path in (on_ray / "parts").iterdir()) == before
    assert Counter(computed(here)) == Counter(range(1, COUNT + 1))


@dataclass(frozen=True)
class Waiting(IGLens):
    """A lens that takes its time, so that there is some to stop it in."""

    def attributing(self, decoder, trace, target):
        time.sleep(0.1)
        return super().attributing(decoder, trace, target)


@dataclass(frozen=True)
class Deadly(IGLens):
    """A lens that ends its process at every prompt of three tokens that starts with w3."""

    def attributing(self, decoder, trace, target):
        if len(trace.ids) == 3 and int(trace.ids[0]) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().attributing(decoder, trace, target)


def test_a_death_loses_no_row_and_doubles_none_and_a_row_that_kills_each_time_is_a_failure(model, tmp_path):
    lines = [HEADER, "w3 w4 w5,,,", *(f"w{k} w5 w6,,," for k in range(10, 20))]
    found = listed("\n".join(lines))
    for step in running(asked(model, found, [Deadly()], workers=1), tmp_path):
        last = step
    assert "3 deaths made good" in last.text
    assert Counter(computed(tmp_path)) == Counter(range(1, len(lines)))
    got = outcomes(tmp_path, found)
    assert [one.row.row for one in got if one.failure] == [1]
    assert "its worker died each time" in got[0].failure
    assert got[0].passing  # so that --resume tries it again


def test_a_run_goes_on_with_what_was_asked_only(made, model):
    with pytest.raises(BadRun, match="add --resume"):
        finish(running(asked(model), made[0]))
    with pytest.raises(BadRun, match="its lenses dla is"):
        finish(running(asked(model, names=["ig-lens"]), made[0], resume=True))
    with pytest.raises(BadRun, match='its model dtype is "float32", not "bfloat16"'):
        finish(running(asked(model, dtype="bfloat16"), made[0], resume=True))
    with pytest.raises(BadRun, match=f"its file rows is {COUNT}, not 4"):
        finish(running(asked(model, listed("\n".join(LIST.splitlines()[:5]))), made[0], resume=True))


def test_a_folder_in_use_is_left_alone(made, model):
    with held(made[0]) as (_, seen):
        with pytest.raises(BadRun, match="another process is writing"):
            finish(running(asked(model), made[0], resume=True))
        seen.seen()


def test_files_that_are_no_runs_are_never_replaced(model, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine.csv").write_text("a")
    with pytest.raises(BadRun, match="already holds results, which is no run's"):
        finish(making.making(asked(model), tmp_path))
    assert (tmp_path / "results" / "mine.csv").exists()


@pytest.fixture
def folder(tmp_path) -> Path:
    """The list as several files of three kinds, and one that is no list."""
    home = tmp_path / "lists"
    (home / "b").mkdir(parents=True)
    (home / "a.csv").write_text("\n".join([HEADER, *LINES[:10]]))
    frame = [dict(zip(HEADER.split(","), line.split(","), strict=True)) for line in LINES[10:25]]
    pq.write_table(pa.Table.from_pylist(frame), home / "b" / "b.parquet")
    (home / "c.csv").write_text("\n".join([HEADER.replace(",", ";"), *LINES[25:]]).replace(",", ";"))
    (home / "readme.md").write_text("no list")
    return home


def test_files_are_numbered_by_address_and_a_run_that_is_stopped_computes_no_row_twice(
    folder, model, tmp_path
):
    out, one = tmp_path / "out", asked(model, (str(folder),), [Waiting(), registry.get("dla")], workers=1)
    work = running(one, out)
    for step in work:
        if step.done >= COUNT // 4:
            break
    work.close()
    assert COUNT // 4 <= len(computed(out)) < len(LINES)
    finish(running(one, out, resume=True))
    assert Counter(computed(out)) == Counter(range(1, len(LINES) + 1))
    whole = listed("\n".join([HEADER, *LINES]))
    local(tmp_path / "here", model, whole)
    assert_same(outcomes(out, whole), outcomes(tmp_path / "here", whole))


def test_a_pattern_an_address_and_a_folder_name_the_same_files(folder):
    def names(*given):
        return [Path(path).relative_to(folder).as_posix() for path in sources.found(given)[1]]

    assert names(str(folder)) == ["a.csv", "b/b.parquet", "c.csv"]
    assert names(f"{folder}/*.csv") == ["a.csv", "c.csv"]
    assert names(f"file://{folder}/*.csv") == ["a.csv", "c.csv"]
    assert names(f"{folder}/*/*.parquet", f"{folder}/c.csv") == ["b/b.parquet", "c.csv"]
    with pytest.raises(BadPromptFile, match="holds no prompt list"):
        names(f"{folder}/*.xlsx")
    with pytest.raises(BadPromptFile, match="no such file"):
        names(str(folder / "nosuch"))


def test_a_single_file_behind_a_pattern_is_the_run_of_that_file(folder, model):
    files = finish(sources.reading([f"{folder}/a*"], prompts.AS_FOUND))
    found = prompts.read((folder / "a.csv").read_bytes(), "a.csv")
    assert files.about() == {
        "name": "a.csv", "sha256": found.sha256, "rows": 10, "described": found.described()
    }  # fmt: skip
    assert files.manner == found.manner


def test_a_file_that_cannot_be_read_is_named_before_anything_runs(folder, model, tmp_path):
    (folder / "d.csv").write_text("")
    with pytest.raises(BadPromptFile, match=r"d\.csv is empty"):
        finish(running(asked(model, (str(folder),)), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_be_loaded_is_one_sentence_and_leaves_no_folder(tmp_path):
    with pytest.raises(UnknownModel, match="nosuch"):
        finish(running(asked("nosuch"), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_workers_that_do_not_see_the_folder_say_so(model, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "TOKEN", ".another")  # as if the driver had written elsewhere
    with pytest.raises(BadRun, match="choose a folder that all machines share"):
        finish(running(asked(model), tmp_path / "out"))


def test_what_the_cluster_can_never_hold_is_refused(model, tmp_path):
    with pytest.raises(BadOption, match="has 2 CPUs, which is not enough for 3 workers"):
        finish(running(asked(model, workers=3), tmp_path / "out"))
    with pytest.raises(BadOption, match="has 0 GPUs"):
        finish(running(asked(model, gpus=1.0), tmp_path / "out"))
    assert cluster.placed(2, None) == cluster.Workers(2, 0.5, 0.0, 1)


@pytest.mark.parametrize(
    ("nodes", "count", "gpus", "expected"),
    [
        ([(64, 0)] * 10, 1, None, (1, 0.75, 0.0, 64)),  # no more threads than one machine has
        ([(64, 0)] * 10, 15, None, (15, 0.75, 0.0, 32)),  # two on some machines
        ([(64, 0), (4, 8)], None, None, (8, 0.37, 1.0, 1)),  # the machine with the GPUs has few CPUs
        ([(16, 1)], None, 0.5, (2, 0.75, 0.5, 8)),
        ([(1, 0)], None, None, (1, 0.0, 0.0, 1)),  # leaves its only CPU to what reads
    ],
)
def test_workers_fit_on_the_machines_that_can_have_them(nodes, count, gpus, expected, monkeypatch):
    monkeypatch.setattr(cluster, "_resources", lambda: [{"CPU": cpu, "GPU": gpu} for cpu, gpu in nodes])
    assert cluster.placed(count, gpus) == cluster.Workers(*expected)


def test_what_ray_raises_is_one_sentence():
    def fails(_):
        raise OSError("the disk is full\nand more")

    sentence = "Ray ended the run: the disk is full; what is done is kept"
    with pytest.raises(BadRun, match=sentence), cluster.joined(None):
        ray.data.range(1).map(fails).materialize()


def test_steps_that_wait_for_ray_are_told_while_they_last(monkeypatch):
    monkeypatch.setattr(watching, "TICK", 0.01)
    monkeypatch.setattr(watching, "QUIET", 0.0)
    goes_on = threading.Event()

    def slow():
        yield Progress("summing up")
        goes_on.wait()
        return 7

    texts = []
    work = watching.aside(slow())
    while len(texts) < 3:
        texts.append(next(work).text)
    goes_on.set()
    assert "summing up; at it for 0 min: `ray status` says what Ray does" in texts
    assert finish(work) == 7

    def broken():
        yield Progress("summing up")
        raise BadRun("no")

    with pytest.raises(BadRun, match="no"):
        finish(watching.aside(broken()))


def test_a_list_without_a_good_row_is_refused(folder, model, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("prompt,target\n,x\n")
    with pytest.raises(LensesError, match="no row of it can be run"):
        finish(running(asked(model, (str(path),)), tmp_path / "out"))


def test_a_damaged_part_is_named(made, model, tmp_path):
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    path = sorted((tmp_path / "parts").iterdir())[0]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(BadRun, match=f"{path.name} can't be read"):
        finish(running(asked(model), tmp_path, resume=True))


def test_a_run_that_is_quiet_says_what_it_waits_for():
    two = cluster.Workers(2, 0.5, 0.0, 1)
    assert watching.told(State(ready=2, quiet=59), two) == "explaining with 2 of 2 workers"
    late = [
        (State(ready=1, quiet=120), "waiting for Ray to place a worker of 0.5 CPUs"),
        (State(ready=1, loading=1, quiet=120), "waiting for 1 worker to load the model"),
        (State(ready=2, quiet=120, busy=[1, 65]), "waiting for the batches of rows 1, 65"),
        (State(ready=2, quiet=120), "waiting for rows to be read"),
    ]
    for state, said in late:
        assert f"nothing finished for 2 min: {said}" in watching.told(state, two)


def test_the_board_tells_a_killer_from_bad_luck():
    board = Board()
    assert [board.begin(1), board.begin(1)] == [0, 1]
    board.told(1, 5, ended=True)
    assert board.begin(1) == 0  # it had come to its end
    assert [board.alone(7), board.alone(7)] == [True, False]
    assert [board.loading("w") for _ in range(4)] == [True, True, True, False]
    first = ({"name": "a"}, ("dla",))
    assert board.ready("v", *first) == board.ready("u", {"name": "b"}, ()) == first
    assert board.allowed() is None
    assert board.state().deaths == 3
    board.stop()
    assert not board.told(1, 6)
    assert board.allowed() == ()
    assert board.begin(2) is None


def test_parts_of_a_later_session_count(tmp_path):
    found = listed()
    store = Store(tmp_path, {}, found.rows)
    store.parts.mkdir()
    for number, reason in enumerate(["first", "second"]):
        one = making.store.parts.read(found.rows[0], None)
        parts.keep(
            store.parts / f"000000-{store.free():06d}-000000001.parquet",
            [type(one)(one.row, failure=reason, passing=True)],
        )
        assert store.free() == number + 1
    assert store.one(1).failure == "second"
