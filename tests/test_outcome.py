"""A comparison goes to JSON and back whole."""

from __future__ import annotations

import json
import math

import pytest

import lenses
from lenses import outcome, registry
from lenses.attribution import check
from tests import tiny


def saved(**options: object) -> dict:
    found = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT, target="w5", **options)
    return json.loads(json.dumps(found.to_dict(), allow_nan=False))


@pytest.mark.parametrize("position", [None, 2])
def test_a_saved_comparison_is_read_back_to_the_same_object(position):
    data = saved(position=position)
    assert outcome.read(data).to_dict() == data


@pytest.mark.parametrize("name", registry.LENSES)
def test_the_judge_says_of_a_saved_result_what_it_said_before(name):
    (result,) = outcome.read(saved(lenses=[tiny.lens("gpt2", name)])).results
    assert check(result.attribution).gap == result.additivity.gap


def test_a_number_that_does_not_exist_stays_away():
    data = saved(lenses=["logit-lens"])
    data["lenses"][0]["values"][1] = None
    again = outcome.read(data)
    assert math.isnan(again.results[0].attribution.values[1])
    assert again.to_dict() == data


@pytest.mark.parametrize("schema", [None, "lenses.map/1", "lenses.comparison/2"])
def test_another_schema_is_refused(schema):
    with pytest.raises(ValueError, match=r"is no lenses\.comparison/1"):
        outcome.read({"schema": schema})
