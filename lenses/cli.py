"""The command line: `lenses compare`, `map`, `report`, `validate`, `fit-tuned-lens`, `models`, `methods`.

Exit status 0 when done, 1 for what the user can mend (one line on stderr), 2 for wrong usage.
Progress goes to stderr; `--format json` puts nothing but JSON on stdout.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer

from lenses import console, listing, printing, shortage
from lenses.arguments import (
    Against,
    Answer,
    As,
    BatchSize,
    Chat,
    ClosedForm,
    CorpusFile,
    Delimiter,
    Depths,
    Device,
    Dtype,
    Encoding,
    Engine,
    FitSteps,
    FitTokens,
    Folder,
    Format,
    GpusPerWorker,
    Halves,
    Header,
    Lenses,
    LensFolder,
    ListFile,
    Minutes,
    Model,
    OneLens,
    Output,
    Position,
    Prompt,
    PromptColumn,
    Quick,
    RayAddress,
    Readout,
    Results,
    Resume,
    RunsOn,
    Seed,
    Sources,
    Start,
    Steps,
    Target,
    TargetColumn,
    Workers,
)
from lenses.catalog import DEFAULT
from lenses.errors import BadOption, LensesError

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""Wrong usage of any kind: typer carries its own copy of click and names only this subclass."""

app = typer.Typer(
    help="What each layer of a language model gave to a word, by methods that state what adds up.",
    pretty_exceptions_enable=False,
)


@app.command()
def compare(
    prompt: Prompt,
    model: Model = DEFAULT,
    device: Device = None,
    dtype: Dtype = None,
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

    printing.refuse_unwritable(output)
    names = list(dict.fromkeys(lens)) if lens else None
    lenses = registry.choose(
        names, baseline=baseline, steps=steps, depths=_depths(depths), halves=halves, readout=readout,
        against=against,
    )  # fmt: skip
    decoder = console.load(model, device, dtype)
    lenses = lenses if lens else [one for one in lenses if not one.available(decoder)]
    with console.status("comparing"):
        from lenses import comparison

        result = comparison.compare(
            decoder, prompt, target=target, position=position, lenses=lenses, chat=chat
        )
    printing.write(result, format, output)


@app.command()
def map(
    prompt: Prompt,
    model: Model = DEFAULT,
    device: Device = None,
    dtype: Dtype = None,
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

    printing.refuse_unwritable(output)
    (chosen,) = registry.choose([lens], readout=readout, against=against)
    decoder = console.load(model, device, dtype)
    from lenses import tokens
    from lenses.mapping import mapping

    read = tokens.encode(decoder.tokenizer, prompt, chat)
    printing.write(console.watched(mapping(decoder, read, chosen, answer=answer, top=5)), format, output)


@app.command()
def report(
    source: Sources,
    output: Folder,
    model: Model = DEFAULT,
    device: Device = None,
    dtype: Dtype = None,
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
    engine: RunsOn = Engine.LOCAL,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    ray_address: RayAddress = None,
) -> None:
    """Explain every prompt of a list, and write a report: HTML, JSON, CSV, Parquet and XLSX.

    What is done is kept as it comes: a run that was stopped goes on with --resume. On Ray
    (pip install 'lensledger[ray]') the report is HTML and Parquet; of a single file, the same command with
    --resume and without --engine then writes the other files.
    """
    from lenses import prompts, registry

    listing.refuse_no_folder(output)
    names = list(dict.fromkeys(lens)) if lens else registry.quick()
    lenses = registry.choose(names, readout=readout, against=against)
    manner = prompts.Manner(encoding, listing.delimiter(delimiter), header, prompt_column, target_column)
    cluster = listing.Cluster(workers, gpus_per_worker, ray_address)
    if engine is Engine.RAY:
        named = listing.Named(model, device, dtype)
        listing.on_ray(source, manner, named, lenses, bool(lens), output, resume, batch_size, cluster)
        return
    listed = listing.read(listing.alone(source, cluster), manner)
    decoder = console.load(model, device, dtype)
    lenses = lenses if lens else [one for one in lenses if not one.available(decoder)]
    from lenses import report as reports
    from lenses import terminal

    reports.readable(listed)
    output.mkdir(parents=True, exist_ok=True)
    listing.estimate(decoder, listed, lenses)
    with console.resumable(output):
        found = console.watched(
            reports.making(decoder, listed, lenses, output, resume=resume, batch_size=batch_size)
        )
    terminal.report(found, output, console.console())


@app.command()
def fit_tuned_lens(
    corpus: CorpusFile,
    output: LensFolder,
    model: Model = DEFAULT,
    device: Device = None,
    dtype: Dtype = None,
    closed_form: ClosedForm = False,
    resume: Resume = False,
    minutes: Minutes = 45.0,
    steps: FitSteps = None,
    tokens: FitTokens = 60_000,
    seed: Seed = 0,
) -> None:
    """Fit a tuned lens for a model on a text; afterwards the lens `tuned-lens` finds it by itself.

    A fit that was stopped goes on with --resume. Losses are in nats on text that is held out.
    """
    listing.refuse_no_folder(output)
    corpus.open().close()  # a text that is not there is noticed before the model is loaded
    from lenses import terminal
    from lenses.fitting import Settings, fitting

    settings = Settings(closed_form, minutes, tokens, seed, steps)
    decoder = console.load(model, device, dtype)
    with console.resumable(output):
        made = console.watched(fitting(decoder, corpus, output, settings, resume))
    terminal.fitted(made.record, output, console.console())


@app.command()
def validate(
    file: ListFile,
    output: Results,
    model: Model = DEFAULT,
    device: Device = None,
    dtype: Dtype = None,
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
    decoder = console.load(model, device, dtype)
    from lenses import report as reports
    from lenses import terminal
    from lenses.validating import validating

    reports.readable(listed)
    output.mkdir(parents=True, exist_ok=True)
    listing.estimate(decoder, listed, lenses)
    with console.resumable(output):
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
        with shortage.noticed("what was asked for"):
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
