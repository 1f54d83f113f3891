"""The command line: `lenses compare`, `map`, `report`, `validate`, `models` and `methods`.

Exit status 0 when done, 1 for what the user can mend (one line on stderr), 2 for wrong usage.
Progress goes to stderr; `--format json` puts nothing but JSON on stdout.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lenses import console, listing
from lenses.catalog import DEFAULT
from lenses.errors import BadOption, LensesError

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap
    from lenses.outcome import Comparison

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
    END_OF_TEXT = "end-of-text"
    CORPUS = "corpus"


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
Readout = Annotated[
    str | None,
    typer.Option(help="What is read of the target (see `lenses methods`); its probability by default."),
]
Against = Annotated[
    str | None, typer.Option(help="The other word, for the readouts difference and log-odds.")
]
Halves = Annotated[
    bool, typer.Option("--halves", help="In the JSON, also what attention and MLP gave (IG-Lens and DLA).")
]
Chat = Annotated[bool, typer.Option("--chat", help="Send the prompt through the model's chat template.")]
OneLens = Annotated[str, typer.Option(help="The lens to map (see `lenses methods`).")]
Answer = Annotated[
    int, typer.Option(min=0, help="How many tokens the model may write after the prompt (greedy).")
]
As = Annotated[Format, typer.Option(help="What to print.")]
Output = Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")]
ListFile = Annotated[
    Path, typer.Argument(help="The prompts: CSV, TSV, TXT, JSONL, JSON or XLSX, with a column `prompt`.")
]
Folder = Annotated[Path, typer.Option("--output", "-o", help="The folder that the report is written into.")]
Results = Annotated[
    Path, typer.Option("--output", "-o", help="The folder that the results are written into.")
]
Quick = Annotated[
    list[str] | None,
    typer.Option("--lens", help="A lens; repeat for more. Those that read a trace once by default."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Prompts in one pass of the model, at most.")]
Encoding = Annotated[str | None, typer.Option(help="The file's encoding; found out by default.")]
Delimiter = Annotated[
    str | None, typer.Option(help="comma, semicolon, tab, bar, none or a character; found out by default.")
]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line names the columns.")
]
PromptColumn = Annotated[str | None, typer.Option(help="The column of the prompts, if not `prompt`.")]
TargetColumn = Annotated[str | None, typer.Option(help="The column of the words, if not `target`.")]


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
    readout: Readout = None,
    against: Against = None,
    halves: Halves = False,
    chat: Chat = False,
    format: As = Format.TABLE,
    output: Output = None,
) -> None:
    """Show one prompt's target by several lenses side by side, each with a receipt."""
    from lenses import registry

    _refuse_unwritable(output)
    names = list(dict.fromkeys(lens)) if lens else None
    lenses = registry.choose(
        names, baseline=baseline, steps=steps, depths=_depths(depths), halves=halves, readout=readout,
        against=against,
    )  # fmt: skip
    decoder = console.load(model)
    with console.status("comparing"):
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
    readout: Readout = None,
    against: Against = None,
    answer: Answer = 0,
    chat: Chat = False,
    format: As = Format.TABLE,
    output: Output = None,
) -> None:
    """Show one lens over every token of a prompt and, on request, of the model's own answer."""
    from lenses import registry

    _refuse_unwritable(output)
    (chosen,) = registry.choose([lens], readout=readout, against=against)
    decoder = console.load(model)
    from lenses import tokens
    from lenses.mapping import mapping

    read = tokens.encode(decoder.tokenizer, prompt, chat)
    _write(console.watched(mapping(decoder, read, chosen, answer=answer, top=5)), format, output)


@app.command()
def report(
    file: ListFile,
    output: Folder,
    model: Model = DEFAULT,
    lens: Quick = None,
    readout: Readout = None,
    against: Against = None,
    resume: Resume = False,
    batch_size: BatchSize = 32,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    header: Header = None,
    prompt_column: PromptColumn = None,
    target_column: TargetColumn = None,
) -> None:
    """Explain every prompt of a list, and write a report: HTML, JSON, CSV, Parquet and XLSX.

    What is done is kept as it comes: a run that was stopped goes on with --resume.
    """
    from lenses import prompts, registry

    listing.refuse_no_folder(output)
    names = list(dict.fromkeys(lens)) if lens else registry.quick()
    lenses = registry.choose(names, readout=readout, against=against)
    manner = prompts.Manner(encoding, listing.delimiter(delimiter), header, prompt_column, target_column)
    listed = listing.read(file, manner)
    decoder = console.load(model)
    from lenses import report as reports
    from lenses import terminal

    reports.readable(listed)
    output.mkdir(parents=True, exist_ok=True)
    listing.estimate(decoder, listed, lenses)
    with listing.kept(output):
        found = console.watched(
            reports.making(decoder, listed, lenses, output, resume=resume, batch_size=batch_size)
        )
    terminal.report(found, output, console.console())


@app.command()
def validate(
    file: ListFile,
    output: Results,
    model: Model = DEFAULT,
    lens: Quick = None,
    resume: Resume = False,
    batch_size: BatchSize = 32,
) -> None:
    """Skip every block for every prompt of a list, and hold what each lens says of the blocks against it.

    What is done is kept as it comes: a run that was stopped goes on with --resume.
    """
    from lenses import prompts, registry

    listing.refuse_no_folder(output)
    lenses = registry.choose(list(dict.fromkeys(lens)) if lens else registry.quick())
    listed = listing.read(file, prompts.Manner())
    decoder = console.load(model)
    from lenses import report as reports
    from lenses import terminal
    from lenses.validating import validating

    reports.readable(listed)
    output.mkdir(parents=True, exist_ok=True)
    listing.estimate(decoder, listed, lenses)
    with listing.kept(output):
        found = console.watched(
            validating(decoder, listed, lenses, output, resume=resume, batch_size=batch_size)
        )
    with console.status("writing the files"):
        reports.write_validation(output, found)
    terminal.validation(found, output, console.console())


@app.command()
def models() -> None:
    """List the models that have a short name, and what else `--model` takes."""
    from lenses import terminal

    terminal.models(console.console())


@app.command()
def methods() -> None:
    """List the lenses: what each measures, what it claims adds up, its options and its source."""
    from lenses import terminal

    terminal.methods(console.console())


def main() -> None:
    """The entry point: wrong usage and errors that a user can mend become a line or two."""
    console.quiet()
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
        where = f"{error.filename}: " if error.filename is not None else ""
        _fail(f"{where}{error.strerror or error}", 1)


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
            terminal.depth_map(found, console.console(file=file))
        else:
            terminal.show(found, console.console(file=file))
        return
    escaped = not str(file.encoding).lower().startswith("utf")
    json.dump(found.to_dict(), file, ensure_ascii=escaped, allow_nan=False, indent=1)
    file.write("\n")
