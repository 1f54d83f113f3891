"""The judge of many visitors of one server: no other's number, no error and no growth goes by."""

from __future__ import annotations

import pytest

from tests.benchmarks.soak_told import Told, grown, report, strangers

FLAT = [(5.0, 900.0), (121.0, 1000.0), (600.0, 1100.0)]


def test_a_headline_that_is_neither_the_one_before_nor_the_one_after_is_a_stranger():
    assert strangers(["old", "new"], "old", "new") == []
    assert strangers(["old ", "\n new"], "old", "new") == []
    # Another visitor's, for a moment, though the right one comes in the end.
    assert strangers(["old", "another's", "new"], "old", "new") == ["another's"]
    assert strangers(["new", "old", "older"], "old", "new") == ["older"]


def test_memory_may_grow_by_a_quarter_and_the_store_and_no_more():
    assert grown([(5.0, 100.0), (121.0, 1000.0), (600.0, 1250.0 + 512)]) == []
    (said,) = grown([(5.0, 100.0), (121.0, 1000.0), (600.0, 1251.0 + 512)])
    assert said == (
        "the server's memory grew from 1000 MB at minute 2.0 to 1763 MB, more than 1762 MB "
        "(1.25 times that and 512 MB of results)"
    )
    assert grown([(5.0, 100.0), (60.0, 1000.0)], bound=10.0)  # a run of a minute has its beginning


@pytest.mark.parametrize("what", ["wrong", "dead", "faults"])
def test_each_kind_of_failure_counts_and_is_told(what):
    assert not Told(memory=FLAT).failures
    told = Told(memory=FLAT, **{what: ["session 3: this"]})
    assert told.failures == ["session 3: this"]
    assert "- session 3: this" in report(told, ["prompt"])


def test_memory_that_grew_is_a_failure_and_told():
    told = Told(memory=[(121.0, 100.0), (600.0, 5000.0)])
    assert len(told.failures) == 1
    assert "- the server's memory grew from 100 MB" in report(told, [])


def test_the_seconds_of_each_kind_of_request_are_told():
    told = Told(memory=FLAT)
    told.seconds["prompt"] += [1.0, 2.0, 9.0]
    said = report(told, ["prompt", "map"])
    assert "| prompt | 3 | 2.00 | 9.00 |" in said
    assert "| map" not in said
    assert "1000 MB at minute 2.0, 1100 MB at the end, 1100 MB at most" in said
