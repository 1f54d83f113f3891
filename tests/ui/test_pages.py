"""Every page and every error state, without a browser, on tiny models and the default one."""

from __future__ import annotations

import json
import re

import pytest
import streamlit as st

import lenses
from lenses import registry
from lenses.errors import BadOption
from lenses.lens import fields
from lenses.ui import models, options
from lenses.ui.answers import jobs
from lenses.ui.settings import settings
from lenses.ui.text import label
from tests import tiny
from tests.ui.pages import (
    HOME,
    app,
    charts,
    headline,
    opened,
    rows,
    settle,
    submit,
    texts,
    verdicts,
)

HAVE = [name for name in registry.LENSES if name != "tuned-lens"]
"""The lenses that a tiny model has."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


# The first page


def test_the_first_run_shows_the_example_and_imports_no_torch():
    import subprocess
    import sys

    code = (
        "from streamlit.testing.v1 import AppTest; import sys\n"
        f"at = AppTest.from_file({str(HOME / 'app.py')!r}, default_timeout=60).run()\n"
        "assert not at.exception, at.exception[0].value\n"
        "assert any('precomputed example' in e.proto.body for e in at.html)\n"
        "assert len(at.get('vega_lite_chart')) == 7\n"
        "sys.exit(bool({'torch', 'transformers', 'captum', 'altair'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=HOME).returncode == 0


@pytest.mark.real
def test_the_example_is_what_the_default_model_says(smol):
    from tests.make_example import PLACE, example

    kept, made = json.loads(PLACE.read_text(encoding="utf-8")), example(smol)
    for old, new in zip(kept["comparison"]["lenses"], made["comparison"]["lenses"], strict=True):
        # Another machine's matrix products differ in their last bits, which integrals make larger.
        assert old["values"] == pytest.approx(new["values"], abs=2e-3 * max(map(abs, new["values"])))
        for part in ("name", "title", "unit", "claim", "options", "depths"):
            assert old[part] == new[part]
    for name, chart in kept["charts"].items():
        assert shape(chart) == shape(made["charts"][name])


def shape(chart: dict) -> str:
    """A chart without its numbers, so that only what draws it is compared."""
    plain = {k: v for k, v in chart.items() if k not in ("datasets",)}
    return re.sub(r"data-[0-9a-f]+|-?\d+\.\d+(e-?\d+)?", "#", json.dumps(plain, sort_keys=True))


def test_a_comparison_shows_each_lens_with_its_receipt_in_words(folder):
    at = opened(folder)
    compared = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT)
    assert f"{100 * compared.probability:.1f} %" in headline(at)
    assert len(verdicts(at)) == len(HAVE)
    assert verdicts(at)[:3] == ["adds up exactly", "no claim to check", "adds up exactly"]
    for lens in map(registry.get, HAVE):
        assert lens.title in texts(at)
        assert lens.card.adds_up in texts(at)
    # A card each, the ledger, the agreement and where it sets in.
    assert len(charts(at)) == len(HAVE) + 3


def test_a_lens_that_the_model_cannot_have_is_a_card_that_says_what_to_do(folder):
    at = opened(folder, lenses="logit-lens,tuned-lens")
    assert len(verdicts(at)) == 1
    assert "fit one with `lenses fit-tuned-lens" in texts(at)


def test_the_json_to_download_is_the_librarys_own_object(folder, downloads):
    opened(folder, target="w5")
    made = json.loads(downloads["Comparison as JSON"])
    own = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT, target="w5").to_dict()
    assert [entry["values"] for entry in made["lenses"]] == [
        pytest.approx(entry["values"], abs=1e-6) for entry in own["lenses"]
    ]
    assert made["target"] == {**own["target"], "probability": pytest.approx(own["target"]["probability"])}
    assert made["tokens"] == own["tokens"]


def test_the_table_to_download_follows_the_target(folder, downloads):
    at = opened(folder)
    before = downloads["Table as CSV"]
    at.text_input(key="typed").set_value("w9")
    settle(at)
    after = downloads["Table as CSV"]
    assert before != after
    assert after.decode("utf-8-sig").startswith(
        "depth,which is,IG-Lens (probability),Logit lens (probability)"
    )
    own = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT, target="w9")
    level = float(after.decode("utf-8-sig").splitlines()[-1].split(",")[3])
    assert level == pytest.approx(own.probability, abs=1e-6)


def test_a_run_with_nothing_changed_builds_and_computes_nothing(folder, fresh, monkeypatch):
    at = opened(folder)
    made = []
    monkeypatch.setattr(lenses.ui.drawing.jobs().results, "put", lambda *given: made.append(given[0]))
    at.run()
    assert made == []


def test_picking_a_word_changes_the_headline_and_typing_one_takes_its_place(folder):
    at = opened(folder)
    first = headline(at)
    likely = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT).target.token
    at.session_state["picked"] = next(i for i in range(64) if i != likely)
    settle(at)
    assert headline(at) != first
    at.text_input(key="typed").set_value("w9")
    settle(at)
    assert "‘w9’" in headline(at)
    assert "read as one token:" in texts(at)


def test_another_prompt_starts_again_from_its_own_likeliest_word(folder):
    at = opened(folder, target_id="9")
    assert "‘w9’" in headline(at)
    at.text_area(key="prompt").set_value("w3 w4")
    submit(at)
    own = lenses.compare(tiny.decoder("gpt2"), "w3 w4")
    assert f"‘{own.target_text}’" in headline(at)


def test_live_options_and_the_position_change_the_answer_at_once(folder):
    at = opened(folder, lenses="ig-lens")
    at.text_input(key="ig-lens.depths").set_value("1")
    settle(at)
    assert rows(at, 0)["depth"].tolist() == [1, 3]
    at.selectbox(key="position").set_value(2)
    settle(at)
    own = lenses.compare(tiny.decoder("gpt2"), tiny.PROMPT, position=2, lenses=["ig-lens"])
    assert f"{100 * own.probability:.1f} %" in headline(at)


def test_half_steps_are_switched_on_by_a_link_and_explained_below_their_card(folder):
    at = opened(folder, lenses="ig-lens", **{"ig-lens.halves": "True"})
    assert at.toggle(key="ig-lens.halves").value is True
    assert "Narrow bars: what attention (green, left) and the MLP (purple, right) gave of it" in texts(at)
    assert rows(at, 0)["attention_text"].str.endswith("%").all()
    at.toggle(key="ig-lens.halves").set_value(False)
    submit(at)
    assert "Narrow bars" not in texts(at)


def test_every_option_of_every_lens_has_its_control(folder):
    every = [(name, f) for name, lens in registry.LENSES.items() for f in lenses.lens.fields(lens)]
    shown = controls_of(opened(folder))
    for name, f in every:
        when = f.metadata["when"]
        if options.key(name, f.name) in shown:
            continue
        # One that changes at once is there as soon as it counts.
        assert when is not None, f.name
        assert f.metadata["live"], f.name
        owner = options.key(name, when[0])
        assert options.key(name, f.name) in controls_of(opened(folder, **{owner: when[1]}))


def controls_of(at) -> set[str]:
    return {w.key for kind in ("selectbox", "number_input", "text_input", "toggle") for w in at.get(kind)}


def test_a_lens_that_is_added_to_the_registry_is_on_every_page(folder, fresh, monkeypatch):
    from tests.ui.throwaway import Throwaway

    monkeypatch.setitem(registry.LENSES, Throwaway.name, Throwaway)
    at = opened(folder)
    assert Throwaway.title in texts(at)
    assert Throwaway.card.adds_up in texts(at)
    at.number_input(key="throwaway.times").set_value(3)
    submit(at)
    assert rows(at, len(HAVE))["value"].tolist() == [3.0, 3.0]
    methods = app("methods").run()
    assert not methods.exception
    assert Throwaway.title in texts(methods)
    assert any("throwaway" in element.value for element in methods.latex)


# What goes wrong


WRONG = [
    (dict(prompt=""), "the prompt is empty: the model starts from [BOS] alone"),
    (dict(prompt="w3 " * 40), "the prompt has 40 tokens and the model has places for 32"),
    (
        dict(target="zzz"),
        "'zzz' is not in this model's vocabulary; until then, the word",
    ),
    (dict(target_id="640"), "the target id 640 is outside this vocabulary of 64 tokens"),
    (dict(chat="1"), "this model has no chat template"),
    (dict(lenses=""), "choose at least one method above"),
    (dict(lenses="ig-lens,no-such"), "there is no lens 'no-such'; it is left out"),
    (dict(position="9"), "position 9 is outside the prompt, whose last is 5; it is left out"),
    (dict(position="x"), "position must be a whole number of at most 9 digits, not 'x'; it is left out"),
    (dict(target_id="999999999"), "the target id 999999999 is outside this vocabulary"),
    (dict(target_id="9" * 5000), "target_id must be a whole number of at most 9 digits"),
    (dict(answer="5000"), "answer must be at most 200, not 5000"),
    (dict(**{"layer-ig__steps": "30000"}), "layer-ig: steps must be at most 1000, not 30000"),
    (dict(model="~no-such-user-here/x"), "can't be looked at"),
    (dict(model="x" * 5000 + ".gguf"), "can't be looked at"),
    (dict(**{"ig-lens__depths": "1,b"}), "ig-lens: depths can't be '1,b'; it is left out"),
    (dict(**{"ig-lens__depths": "1,9"}), "ig-lens: depth 9 is outside 0…3 of this model"),
    (dict(**{"layer-ig__steps": "0"}), "layer-ig: steps must be a whole number of at least 1, not 0"),
    (
        dict(**{"ig-lens__baseline": "middle"}),
        "baseline must be one of embedding, mean, zero, token, end-of-text, corpus, not 'middle'",
    ),
    (dict(**{"no-such__steps": "1"}), "there is no option 'no-such.steps'"),
    (dict(model="/no/such/folder"), "there is no model folder at /no/such/folder"),
]


@pytest.mark.parametrize(("query", "said"), WRONG, ids=[row[1][:40] for row in WRONG])
def test_what_is_wrong_is_one_sentence_in_its_place_and_the_page_stays(query, said, folder):
    at = opened(folder, **query)
    assert said in texts(at)
    assert at.text_area(key="prompt")
    assert [b for b in at.button if b.proto.label == "Run"]


def test_a_model_that_fails_to_load_leaves_the_old_one_in_use(folder, fresh):
    at = opened(folder)
    before = headline(at)
    at.session_state["model"] = models.choice_of("/no/such/folder")
    settle(at)
    assert "there is no model folder at /no/such/folder" in texts(at)
    assert headline(at) == before
    assert "gpt2 is loaded" in texts(at)


def test_a_session_holds_no_tensor_and_no_model(folder):
    for page in ("compare", "map"):
        at = opened(folder, page, answer="1", position="2")
        for name in at.session_state._state.filtered_state:
            kinds = {kind.__name__ for kind in parts_of(at.session_state[name])}
            assert not kinds & {"Tensor", "Parameter", "Decoder", "Held", "Trace", "ndarray"}, name


def parts_of(value: object) -> set[type]:
    """The types of a value and of everything in it."""
    inside = list(vars(value).values()) if hasattr(value, "__dict__") else []
    inside += list(value) if isinstance(value, tuple | list | set | frozenset) else []
    inside += list(value.values()) if isinstance(value, dict) else []
    return {type(value)}.union(*(parts_of(part) for part in inside))


def test_the_host_can_limit_the_prompt_and_the_models(folder, fresh, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", "4")
    assert "the prompt has 6 tokens and at most 4 are taken here: leave out 2" in texts(opened(folder))
    monkeypatch.setenv("LENSES_MODELS", "gpt2")
    st.cache_resource.clear()
    at = opened(folder)
    assert "this page loads only gpt2: choose one of them" in texts(at)
    assert at.selectbox(key="model_name").options == ["gpt2"]


def test_visitors_of_a_hosted_page_name_no_folder_of_its_machine(folder, fresh, monkeypatch):
    asked = {"model": folder, "prompt": tiny.PROMPT, "lenses": "tuned-lens", "folder": "/etc"}
    at = settle(app("compare", **asked))
    assert "/etc" in texts(at)  # at home it is looked into
    assert [box for box in at.text_input if box.key == "folder"]
    monkeypatch.setenv("LENSES_MODELS", folder)
    st.cache_resource.clear()
    at = settle(app("compare", **asked))
    assert "/etc" not in texts(at)
    assert not [box for box in at.text_input if box.key == "folder"]


def test_visitors_of_a_hosted_page_do_not_say_how_much_memory_a_method_takes(folder, fresh, monkeypatch):
    names = [
        options.key(lens, f.name)
        for lens in registry.LENSES
        for f in fields(registry.LENSES[lens])
        if f.metadata.get("memory")
    ]
    assert names == ["layer-ig.internal_batch_size", "conductance.internal_batch_size"]
    asked = {"lenses": "layer-ig,conductance", **{name.replace(".", "__"): "3" for name in names}}
    found, chosen = [], options.chosen
    monkeypatch.setattr(options, "chosen", lambda names: found.append(chosen(names)) or found[-1])
    at = opened(folder, **asked)
    assert {box.key for box in at.number_input} >= set(names)
    assert {lens.internal_batch_size for lens in found[-1]} == {3}
    monkeypatch.setenv("LENSES_MODELS", folder)
    st.cache_resource.clear()
    at = opened(folder, **asked)
    assert not {box.key for box in at.number_input} & set(names)
    assert {lens.internal_batch_size for lens in found[-1]} == {None}


def test_a_word_counts_against_the_hosts_limit_and_the_one_before_stays(folder, fresh, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", "7")
    at = opened(folder, target="w5 w6 w7")
    assert "prompt and word have 8 tokens and at most 7 are taken here: leave out 1" in texts(at)
    assert "until then, the word that was picked above is shown" in texts(at)
    assert "‘w5w6’" in headline(opened(folder, target="w5 w6"))


def test_a_revision_is_never_a_path(folder, fresh):
    for revision in ("/etc/passwd", "../../x", "a/../b"):
        at = opened("owner/no-such-model", revision=revision)
        assert f"{revision!r} is no revision" in texts(at)


def test_an_answer_counts_against_the_hosts_limit(folder, fresh, monkeypatch):
    monkeypatch.setenv("LENSES_MAX_TOKENS", "8")
    at = opened(folder, "map", answer="3")
    assert "prompt and answer have 9 tokens and at most 8 are taken here: leave out 1" in texts(at)


def test_the_address_names_the_model_whose_numbers_are_shown(folder, fresh):
    at = opened(folder, target_id="9")
    at.session_state["model"] = models.choice_of("/no/such/folder")
    settle(at)
    assert at.query_params["model"] == folder


def test_what_failed_can_be_tried_again(folder, fresh, monkeypatch):
    from lenses.methods.conductance import Conductance

    whole = Conductance.attributing

    def broken(*given):
        raise ZeroDivisionError("a defect")
        yield

    monkeypatch.setattr(Conductance, "attributing", broken)
    at = opened(folder)
    assert "this is a defect of LensLedger" in texts(at)
    monkeypatch.setattr(Conductance, "attributing", whole)
    at.button(key="retry-conductance").click()
    settle(at)
    assert "this is a defect of LensLedger" not in texts(at)
    assert len(charts(at)) == len(HAVE) + 3


@pytest.mark.parametrize(
    "name", ["LENSES_MAX_TOKENS", "LENSES_MAX_ROWS", "LENSES_QUEUE", "LENSES_MODELS_KEPT"]
)
def test_a_setting_that_is_no_number_is_a_sentence(name, monkeypatch):
    for text in ("many", "two", "0", "-1", "1.5", "²", "9" * 5000):
        monkeypatch.setenv(name, text)
        with pytest.raises(BadOption, match=f"{name} must be a whole number of at least 1, not"):
            settings()
    at = app().run()
    assert not at.exception
    assert f"{name} must be a whole number of at least 1, not '999" in texts(at)


def test_the_settings_are_read_from_the_environment(monkeypatch):
    assert (settings().queue, settings().max_rows, settings().hosted) == (50, None, False)
    monkeypatch.setenv("LENSES_QUEUE", "3")
    monkeypatch.setenv("LENSES_MAX_ROWS", "200")
    monkeypatch.setenv("LENSES_MODELS", "gpt2")
    monkeypatch.setenv("LENSES_MODELS_KEPT", "2")
    assert (settings().queue, settings().max_rows, settings().hosted) == (3, 200, True)
    assert settings().kept == 2


def test_a_lens_that_can_be_done_without_is_and_comes_back_when_wanted(folder, fresh):
    at = opened(folder)
    st.cache_resource.clear()  # everything has to be made again
    at.session_state["stopped"] = _Everything()
    settle(at)
    slow = [name for name in registry.LENSES if registry.get(name).slow]
    assert texts(at).count("You chose to do without this one.") == len(slow)
    at.session_state["stopped"] = frozenset()
    settle(at)
    assert "You chose to do without" not in texts(at)


class _Everything(frozenset):
    def __contains__(self, key: object) -> bool:
        return True


# The address


def test_an_address_opens_the_same_page_again(folder):
    query = dict(target="w9", position="3", lenses="ig-lens,conductance", **{"conductance.steps": "7"})
    first = opened(folder, **{k.replace(".", "__"): v for k, v in query.items()})
    left = dict(first.query_params)
    assert {k: v for k, v in left.items() if k in query} == query
    again = settle(app(**{k.replace(".", "__"): v for k, v in left.items()}))
    assert headline(again) == headline(first)
    assert charts(again) == charts(first)


# The other pages


def test_the_map_shows_a_cell_for_every_token_and_depth_and_a_link_to_one_of_them(folder):
    at = opened(folder, "map", answer="2")
    assert len(charts(at)) == 1
    assert len(rows(at, 0)) == 3 * (len(tiny.IDS) + 1)
    assert "click a cell or a token" in texts(at)
    at.session_state["map_position"], at.session_state["start_target"] = 6, 9
    settle(at)
    assert "‘w9’" in headline(at)
    assert len(charts(at)) == 1 + len(HAVE) + 3


def test_a_map_can_be_stopped_and_started_again(folder, fresh):
    at = opened(folder, "map")
    key = next(key for key in jobs().results._kept if key[0] == "map")
    at.session_state["map_stopped"] = key
    settle(at)
    assert "the map was stopped" in texts(at)
    assert charts(at) == []
    at.button(key="again-map").click()
    settle(at)
    assert len(charts(at)) == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (dict(prompt="w3 " * 40), "the prompt has 40 tokens and the model has places for 32"),
        (dict(answer="30"), "the model has places for 32"),
        (dict(map="no-such"), "there is no lens 'no-such' to map"),
        (dict(model="/no/such/folder"), "there is no model folder at"),
    ],
)
def test_what_is_wrong_with_a_map_is_one_sentence_too(query, said, folder):
    at = opened(folder, "map", **query)
    assert said in texts(at)
    assert at.text_area(key="prompt")


def test_the_methods_page_says_of_every_lens_what_it_claims_and_why():
    at = app("methods").run()
    assert not at.exception
    assert [element.value for element in at.latex] == [
        f"$$\n{lens.card.formula}\n$$" for lens in registry.LENSES.values()
    ]
    for lens in registry.LENSES.values():
        for part in (lens.title, lens.source, lens.card.adds_up, lens.card.caveats, lens.card.cost):
            assert part in texts(at)
    assert any("first difference of the logit lens" in m.value for m in at.markdown)


# Text is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "`a`"),
        (" a`b", "``␣a`b``"),
        ("`", "`` ` ``"),
        ("$5 **x** :smile:", "`$5 **x** :smile:`"),
        ("", "(empty)"),
        ("\n", "`⏎`"),
        (":material/home:", "\\:material\\/home\\:"),
    ],
)
def test_a_label_fences_what_markdown_would_read(text, shown):
    assert label(text) == shown


@pytest.mark.parametrize(
    "text", ["$5 or $10 _now_ **x**", '"><img src=x onerror=alert(1)>', "a.b", "[x]", "it's"]
)
def test_a_prompt_is_escaped_wherever_it_stands(text, folder):
    at = opened(folder, prompt=f"w3 {text}")
    assert "<img" not in " ".join(element.proto.body for element in at.html)
    assert text in headline(at)
