"""Controls for a lens's options, made from the fields of its class: a new lens needs nothing here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import streamlit as st

from lenses.errors import BadOption, LensesError
from lenses.lens import MOST, fields
from lenses.registry import LENSES, get
from lenses.ui.text import message

if TYPE_CHECKING:
    import dataclasses

    from lenses.lens import Lens


def controls(names: Iterable[str], live: bool, columns: Sequence[Any] = ()) -> None:
    """The widgets of the lenses' options that are cheap to change (`live`), or of the others.

    Their values stay in the session under `lens.field`; `chosen` makes lenses of them.
    """
    shown = [
        (name, f) for name in names for f in fields(LENSES[name]) if f.metadata.get("live", False) == live
    ]
    columns = columns or (st.columns(3) if shown else [])
    for k, (name, f) in enumerate(shown):
        with columns[k % len(columns)]:
            _widget(name, f)


def chosen(names: Iterable[str]) -> tuple[Lens, ...]:
    """The lenses with the options that the widgets hold; says so, and leaves one out, where one is bad."""
    made = []
    for name in names:
        try:
            made.append(get(name, **_values(name)))
        except LensesError as error:
            message("error", str(error))
    return tuple(made)


def changed(lens: Lens) -> str:
    """The options of a lens that are not at their default, in words; empty for none."""
    told = [
        f"{f.name.replace('_', ' ')} {text_of(getattr(lens, f.name))}"
        for f in fields(lens)
        if getattr(lens, f.name) != f.default
    ]
    return ", ".join(told)


def key(lens: str, option: str) -> str:
    """Where the session keeps an option's value, and its name in a link."""
    return f"{lens}.{option}"


def text_of(value: Any) -> str:
    """An option's value in a text box or a link; empty for None."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def value_of(lens: str, option: str, text: str) -> Any:
    """The value that a text stands for, by the type of the field; raises `BadOption`."""
    kind = get_type_hints(LENSES[lens])[option]
    text = text.strip()
    try:
        if not text and type(None) in get_args(kind):
            return None
        if any(getattr(part, "__origin__", None) is tuple for part in get_args(kind)):
            return tuple(int(part) for part in text.split(","))
        if bool in (kind, *get_args(kind)):
            return {"True": True, "False": False}[text]
        for number in (int, float):
            if number in (kind, *get_args(kind)):
                return number(text)
    except (ValueError, KeyError):
        raise BadOption(f"{lens}: {option} can't be {text!r}") from None
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    if choices and text not in choices:
        raise BadOption(f"{lens}: {option} must be one of {', '.join(choices)}, not {text!r}")
    return text


def _values(name: str) -> dict[str, Any]:
    """The values in the session, those that were never shown at their defaults."""
    values = {}
    for f in fields(LENSES[name]):
        value = st.session_state.get(key(name, f.name), f.default)
        is_text = isinstance(value, str) and not isinstance(f.default, str)
        values[f.name] = value_of(name, f.name, value) if is_text else value
    return values


def _widget(name: str, f: dataclasses.Field[Any]) -> None:
    kind = get_type_hints(LENSES[name])[f.name]
    kinds = (kind, *get_args(kind))
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    title = f"{LENSES[name].title}: {f.name.replace('_', ' ')}"
    common: dict[str, Any] = dict(key=key(name, f.name), help=_help(f), persist_state="session")
    if choices or bool in kinds or int in kinds or float in kinds:
        st.session_state.setdefault(common["key"], f.default)
    else:
        st.session_state.setdefault(common["key"], text_of(f.default))
    if choices:
        st.selectbox(title, choices, **common)
    elif bool in kinds:
        st.toggle(title, **common)
    elif int in kinds:
        least = int(f.metadata.get("least", 0))
        most = int(f.metadata.get("most", MOST))
        st.number_input(
            title,
            min_value=least,
            max_value=most,
            step=1,
            value=None,
            placeholder="left to the lens",
            **common,
        )
    elif float in kinds:
        st.number_input(title, value=None, placeholder="left to the lens", **common)
    else:
        st.text_input(title, placeholder="left to the lens" if str in kinds else "all, or 0,4,8", **common)


def _help(f: dataclasses.Field[Any]) -> str:
    when = f.metadata.get("when")
    needs = f" (counts when {when[0]} is {when[1]})" if when else ""
    return f"{f.metadata.get('help', '')}{needs}"
