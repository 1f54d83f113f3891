"""A page as a link: the query of its address holds the model, the text, the target and the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from lenses.errors import LensesError
from lenses.lens import fields
from lenses.registry import LENSES, shared, takes
from lenses.ui import options
from lenses.ui.models import choice_of
from lenses.ui.shelf import Choice
from lenses.ui.text import message

PROMPT = "The capital of France is"
MODEL = ("dtype", "device", "revision")
DIGITS = 9
LONGEST = 200
"""Generated tokens at most."""


def arrive(first: str) -> None:
    """Fill a new session from the address it came with; what can't be read is said, and left out."""
    if "prompt" in st.session_state:
        return
    query = {name: st.query_params[name] for name in st.query_params}
    state = st.session_state
    state["model"] = choice_of(
        query.get("model", first), **{name: query[name] for name in MODEL if name in query}
    )
    state["prompt"] = query.get("prompt", PROMPT)
    state["chat"] = query.get("chat") == "1"
    problems: list[str] = []
    state["lenses"] = _lenses(query, problems)
    state["start_target"] = _target(query, problems)
    state["start_position"] = _whole(query, "position", problems)
    state["answer_tokens"] = _answer(query, problems)
    state["map_lens"] = _map_lens(query, problems)
    state["map_position"] = state["start_position"]
    for name in query:
        if "." in name or name in shared():
            _option(name, query[name], problems)
    state["problems"] = problems


def problems() -> None:
    """Say what in the address could not be read."""
    for problem in st.session_state.get("problems", []):
        message("warning", f"in the address of this page, {problem}; it is left out")


def leave(choice: Choice, target: str | int | None, position: int | None) -> None:
    """Make the address of the page one that opens it again."""
    query = written(st.session_state, choice, target, position)
    if dict(st.query_params) != query:
        st.query_params.from_dict(query)


def written(state: Any, choice: Choice, target: str | int | None, position: int | None) -> dict[str, str]:
    """The query of a page about the model of `choice`, without what is at its default."""
    query = {"model": choice.name, "prompt": state["prompt"]}
    query |= {name: str(getattr(choice, name)) for name in MODEL if getattr(choice, name)}
    if state["chat"]:
        query["chat"] = "1"
    if isinstance(target, int):
        query["target_id"] = str(target)
    elif target is not None:
        query["target"] = target
    if position is not None:
        query["position"] = str(position)
    if state["answer_tokens"]:
        query["answer"] = str(state["answer_tokens"])
    if state["map_lens"] != next(iter(LENSES)):
        query["map"] = state["map_lens"]
    if state["lenses"] != list(LENSES):
        query["lenses"] = ",".join(state["lenses"])
    for name in state["lenses"]:
        for f in fields(LENSES[name]):
            value = state.get(options.key(name, f.name), f.default)
            if options.text_of(value) != options.text_of(f.default):
                query[options.key(name, f.name)] = options.text_of(value)
    return query


def _lenses(query: Mapping[str, str], problems: list[str]) -> list[str]:
    if "lenses" not in query:
        return list(LENSES)
    asked = [name for name in query["lenses"].split(",") if name]
    problems += [f"there is no lens {name!r}" for name in asked if name not in LENSES]
    return [name for name in LENSES if name in asked]


def _answer(query: Mapping[str, str], problems: list[str]) -> int:
    count = _whole(query, "answer", problems) or 0
    if count > LONGEST:
        problems.append(f"answer must be at most {LONGEST}, not {count}")
        return 0
    return count


def _map_lens(query: Mapping[str, str], problems: list[str]) -> str:
    first = next(iter(LENSES))
    if query.get("map", first) not in LENSES:
        problems.append(f"there is no lens {query['map']!r} to map")
        return first
    return query.get("map", first)


def _target(query: Mapping[str, str], problems: list[str]) -> str | int | None:
    return query["target"] if "target" in query else _whole(query, "target_id", problems)


def _whole(query: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > DIGITS:
        problems.append(f"{name} must be a whole number of at most {DIGITS} digits, not {text[:40]!r}")
        return None
    return int(text)


def _option(name: str, text: str, problems: list[str]) -> None:
    """Put one lens's option into the session, as its widget would."""
    try:
        lens, option = options.owner(name)
        value = options.value_of(lens, option, text)
        if takes(LENSES[lens], option, value):
            LENSES[lens](**{option: value})
    except LensesError as error:
        problems.append(str(error))
        return
    st.session_state[name] = text if isinstance(value, tuple) else value
