"""What the README says of methods and models is generated; `python -m tests.test_readme` rewrites it."""

from __future__ import annotations

import re
from pathlib import Path

from lenses import registry
from lenses.catalog import MODELS
from lenses.readouts import MEANINGS, UNITS

README = Path(__file__).parent.parent / "README.md"


def methods() -> str:
    rows = [
        f"| **{row['method']}** (`{row['name']}`) | {row['measures']} | {row['claims']} | {row['source']} |"
        for row in registry.table()
    ]
    return "\n".join(
        ["| method | what it measures | what it claims adds up | source |", "|---|---|---|---|", *rows]
    )


def models() -> str:
    rows = [f"| `{m.name}` | {m.title} | {m.parameters} | {m.note} |" for m in MODELS]
    return "\n".join(["| `--model` | model | parameters | where from |", "|---|---|---|---|", *rows])


def readouts() -> str:
    rows = [
        f"| `{name}` | {meaning} | {UNITS[name].value} |"
        for name, meaning in MEANINGS.items()
        if name != "rank"
    ]
    return "\n".join(["| readout | what is read | unit |", "|---|---|---|", *rows])


def generated(text: str) -> str:
    """The README's text with its generated parts made anew."""
    for name, make in (("methods", methods), ("models", models), ("readouts", readouts)):
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        assert re.search(pattern, text, flags=re.S), f"the README has no place for {name}"
        text = re.sub(pattern, lambda m, make=make: m[1] + make() + "\n" + m[2], text, flags=re.S)
    return text


def test_the_readmes_tables_are_those_of_the_registry_and_the_catalog():
    text = README.read_text()
    assert text == generated(text), "run python -m tests.test_readme"


def test_the_readmes_commands_are_those_that_ci_runs():
    ci = (README.parent / ".ci" / "run").read_text()
    assert "install '.[test]'" in README.read_text().replace('"', "'")
    assert "install --quiet '.[test]'" in ci
    assert "-m pytest" in ci


if __name__ == "__main__":
    README.write_text(generated(README.read_text()))
