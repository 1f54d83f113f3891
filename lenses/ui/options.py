"""Controls for a lens's options, made from the fields of its class: a new lens needs nothing here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import streamlit as st

from lenses import registry
from lenses.errors import BadOption, LensesError
from lenses.lens import MOST, fields
from lenses.registry import LENSES, get
from lenses.ui.settings import settings
from lenses.ui.text import message, small

if TYPE_CHECKING:
    import dataclasses

    from lenses.lens import Lens


def controls(
    names: Iterable[str], live: bool, columns: Sequence[Any] = (), without: Iterable[str] = ()
) -> None:
    """The widgets of the lenses' options that are cheap to change (`live`), or of the others.

    Their values stay in the session under `lens.field`; `chosen` makes lenses of them. Lenses `without`
    have theirs elsewhere on the page; one that is shown at once is left out while it does not count.
    """
    elsewhere = {key(name, f.name) for name in without for f in fields(LENSES[name])}
    shown: dict[str, tuple[str, dataclasses.Field[Any]]] = {}
    for name in names:
        for f in fields(LENSES[name]):
            wanted = f.metadata.get("live", False) == live and not (live and _idle(name, f))
            if wanted and key(name, f.name) not in elsewhere and not _kept_from(f):
                shown.setdefault(key(name, f.name), (name, f))  # shared by several: the first one's words
    columns = columns or (st.columns(3) if shown else [])
    for k, (name, f) in enumerate(shown.values()):
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
    """Where the session keeps an option's value, and its name in a link: one for all lenses that share it."""
    (f,) = [f for f in fields(LENSES[lens]) if f.name == option]
    return option if f.metadata.get("shared") else f"{lens}.{option}"


def owner(name: str) -> tuple[str, str]:
    """The lens and the option that a name in a link means; raises `BadOption` for one that is none."""
    for lens in LENSES:
        for f in fields(LENSES[lens]):
            if key(lens, f.name) == name:
                return lens, f.name
    raise BadOption(f"there is no option {name!r}")


def text_of(value: Any) -> str:
    """An option's value in a text box or a link; empty for None."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def value_of(lens: str, option: str, text: str) -> Any:
    """The value that a text stands for, by the type of the field; raises `BadOption`."""
    kind = get_type_hints(LENSES[lens])[option]
    if kind is str:
        return text  # a word's space is a part of it
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
    choices = registry.choices_of(LENSES[lens], option)
    if choices and text not in choices and text not in registry.shared().get(option, []):
        raise BadOption(f"{lens}: {option} must be one of {', '.join(choices)}, not {text!r}")
    return text


def _values(name: str) -> dict[str, Any]:
    """The values in the session, those that were never shown at their defaults."""
    values = {}
    for f in fields(LENSES[name]):
        value: Any = f.default if _kept_from(f) else st.session_state.get(key(name, f.name), f.default)
        is_text = isinstance(value, str) and not isinstance(f.default, str)
        value = value_of(name, f.name, value) if is_text else value
        if f.metadata.get("shared") and not registry.takes(LENSES[name], f.name, value):
            value = f.default  # another lens's choice, which this one does not have
        values[f.name] = value
    return values


def _kept_from(f: dataclasses.Field[Any]) -> bool:
    """Whether an option names a place on a machine that is not the visitor's, or how much of it is taken."""
    return settings().hosted and bool(f.metadata.get("path") or f.metadata.get("memory"))


def _idle(name: str, f: dataclasses.Field[Any]) -> bool:
    """Whether another option's value makes this one count for nothing."""
    if f.metadata.get("when") is None:
        return False
    other, *needed = f.metadata["when"]
    (default,) = (one.default for one in fields(LENSES[name]) if one.name == other)
    return bool(st.session_state.get(key(name, other), default) not in needed)


def _widget(name: str, f: dataclasses.Field[Any]) -> None:
    kind = get_type_hints(LENSES[name])[f.name]
    kinds = (kind, *get_args(kind))
    is_shared = f.metadata.get("shared")
    choices = registry.shared()[f.name] if is_shared else registry.choices_of(LENSES[name], f.name)
    title = f.name.replace("_", " ")
    title = title.capitalize() if is_shared else f"{LENSES[name].title}: {title}"
    common: dict[str, Any] = dict(key=key(name, f.name), help=_help(f), persist_state="session")
    if choices or bool in kinds or int in kinds or float in kinds:
        st.session_state.setdefault(common["key"], f.default)
    else:
        st.session_state.setdefault(common["key"], text_of(f.default))
    if choices:
        picked = st.selectbox(title, choices, **common)
        if meaning := f.metadata.get("meanings", {}).get(picked):
            small(meaning.capitalize())
    elif bool in kinds:
        st.toggle(title, **common)
    elif int in kinds:
        least = int(f.metadata.get("least", 0))
        most = int(f.metadata.get("most", MOST))
        st.number_input(
            title, min_value=least, max_value=most, step=1, value=None, placeholder="left to the lens",
            **common,
        )  # fmt: skip
    elif float in kinds:
        st.number_input(title, value=None, placeholder="left to the lens", **common)
    elif kind is str:
        st.text_input(title, placeholder="␣London is typed as “ London”", live=True, **common)
    else:
        many = any(getattr(part, "__origin__", None) is tuple for part in kinds)
        st.text_input(title, placeholder="all, or 0,4,8" if many else "left to the lens", **common)


def _help(f: dataclasses.Field[Any]) -> str:
    when = f.metadata.get("when")
    needs = f" (counts when {when[0]} is {' or '.join(map(str, when[1:]))})" if when else ""
    return f"{f.metadata.get('help', '')}{needs}"
