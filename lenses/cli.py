"""The command line: `lenses compare`, `lenses map`, `lenses models`, `lenses methods`.

Exit status 0 when done, 1 for what the user can mend (one line on stderr), 2 for wrong usage.
Progress goes to stderr; `--format json` puts nothing but JSON on stdout.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lenses.catalog import DEFAULT
from lenses.errors import BadOption, LensesError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from lenses.decoder import Decoder
    from lenses.depth_map import DepthMap
    from lenses.outcome import Comparison
    from lenses.progress import Progress

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""Wrong usage of any kind: typer carries its own copy of click and names only this subclass."""

app = typer.Typer(
    help="What each layer of a language model gave to a word, by methods that state what adds up.",
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Baseline(StrEnum):
    EMBEDDING = "embedding"
    MEAN = "mean"
    ZERO = "zero"


Prompt = Annotated[str, typer.Argument(help="The text whose next token is explained.")]
Model = Annotated[
    str, typer.Option(help="A catalog name (see `lenses models`), a Hub id, a folder or a .gguf file.")
]
Target = Annotated[str | None, typer.Option(help="The token to explain; the likeliest by default.")]
Position = Annotated[
    int | None, typer.Option(help="Explain the token after this position; the last by default.")
]
Lenses = Annotated[
    list[str] | None,
    typer.Option("--lens", help="A lens (see `lenses methods`); repeat for more. All by default."),
]
Start = Annotated[Baseline | None, typer.Option(help="Where IG-Lens's path starts; embedding by default.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the lenses that integrate.")]
Depths = Annotated[str | None, typer.Option(help="Depths for IG-Lens, as 0,4,8; all by default.")]
Chat = Annotated[bool, typer.Option("--chat", help="Send the prompt through the model's chat template.")]
OneLens = Annotated[str, typer.Option(help="The lens to map (see `lenses methods`).")]
Answer = Annotated[
    int, typer.Option(min=0, help="How many tokens the model may write after the prompt (greedy).")
]
As = Annotated[Format, typer.Option(help="What to print.")]
Output = Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")]


@app.command()
def compare(
    prompt: Prompt,
    model: Model = DEFAULT,
    target: Target = None,
    position: Position = None,
    lens: Lenses = None,
    baseline: Start = None,
    steps: Steps = None,
    depths: Depths = None,
    chat: Chat = False,
    format: As = Format.TABLE,
    output: Output = None,
) -> None:
    """Show one prompt's target by several lenses side by side, each with a receipt."""
    from lenses import registry

    _refuse_unwritable(output)
    names = list(dict.fromkeys(lens)) if lens else None
    lenses = registry.choose(names, baseline=baseline, steps=steps, depths=_depths(depths))
    decoder = _load(model)
    with _status("comparing"):
        from lenses import comparison

        result = comparison.compare(
            decoder, prompt, target=target, position=position, lenses=lenses, chat=chat
        )
    _write(result, format, output)


@app.command()
def map(
    prompt: Prompt,
    model: Model = DEFAULT,
    lens: OneLens = "ig-lens",
    answer: Answer = 0,
    chat: Chat = False,
    format: As = Format.TABLE,
    output: Output = None,
) -> None:
    """Show one lens over every token of a prompt and, on request, of the model's own answer."""
    from lenses import registry

    _refuse_unwritable(output)
    chosen = registry.get(lens)
    decoder = _load(model)
    from lenses import tokens
    from lenses.mapping import mapping

    read = tokens.encode(decoder.tokenizer, prompt, chat)
    _write(_watched(mapping(decoder, read, chosen, answer=answer, top=5)), format, output)


@app.command()
def models() -> None:
    """List the models that have a short name, and what else `--model` takes."""
    from lenses import terminal

    terminal.models(_console())


@app.command()
def methods() -> None:
    """List the lenses: what each measures, what it claims adds up, its options and its source."""
    from lenses import terminal

    terminal.methods(_console())


def main() -> None:
    """The entry point: wrong usage and errors that a user can mend become a line or two."""
    _quiet()
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        # What comes back is the status of an early end, such as 130 after Ctrl-C.
        if status := app(standalone_mode=False, prog_name="lenses"):
            raise SystemExit(status)
    except LensesError as error:
        _fail(str(error), 1)
    except UsageError as error:
        context = getattr(error, "ctx", None)
        _fail(error.format_message(), 2, f"Try `{context.command_path if context else 'lenses'} --help`.")
    except typer.Abort:
        _fail("stopped", 130)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}", 1)


def _fail(text: str, status: int, hint: str = "") -> NoReturn:
    sys.stderr.write(f"lenses: {' '.join(text.split())}\n" + (f"{hint}\n" if hint else ""))
    raise SystemExit(status) from None


def _depths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadOption(f"--depths takes whole numbers with commas, as 0,4,8, not {text!r}") from None


def _load(model: str) -> Decoder:
    """The decoder, with its progress on stderr."""
    with _status("importing torch and transformers"):
        from lenses.loading import loading
    decoder: Decoder = _watched(loading(model))
    return decoder


def _watched(work: Generator[Progress, None, Any]) -> Any:
    """What the work makes, with its progress on stderr where that is a terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    console = _console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        while True:
            try:
                step = next(work)
            except StopIteration as end:
                return end.value
            progress.update(task, description=step.text, completed=step.done, total=step.total or None)


@contextmanager
def _status(text: str) -> Iterator[None]:
    with _console(stderr=True).status(text):
        yield


def _refuse_unwritable(output: Path | None) -> None:
    """Say so before minutes of work, not after."""
    if output is not None and not output.parent.is_dir():
        raise BadOption(f"there is no folder {output.parent} to write {output.name} into: make it first")
    if output is not None and output.is_dir():
        raise BadOption(f"--output takes the name of a file, and {output} is a folder")


def _write(found: Comparison | DepthMap, format: Format, output: Path | None) -> None:
    if output is None:
        _print(found, format, sys.stdout)
        sys.stdout.flush()  # a reader that has gone away is noticed here, not at the interpreter's end
        return
    with open(output, "w", encoding="utf-8") as file:
        _print(found, format, file)


def _print(found: Comparison | DepthMap, format: Format, file: Any) -> None:
    from lenses import terminal
    from lenses.depth_map import DepthMap

    if format is Format.TABLE:
        if isinstance(found, DepthMap):
            terminal.depth_map(found, _console(file=file))
        else:
            terminal.show(found, _console(file=file))
        return
    escaped = not str(file.encoding).lower().startswith("utf")
    json.dump(found.to_dict(), file, ensure_ascii=escaped, allow_nan=False, indent=1)
    file.write("\n")


def _console(**options: Any) -> Any:
    """A rich console; where there is no terminal to measure, a table gets 120 columns."""
    from rich.console import Console

    console = Console(highlight=False, **options)
    return console if console.is_terminal else Console(highlight=False, width=120, **options)


def _quiet() -> None:
    """Keep transformers' and the Hub client's own bars and notes off the terminal."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for library in ("transformers", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a table's bars on a terminal that has no such characters
