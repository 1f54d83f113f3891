"""What the commands take, each argument with its help, written once for all commands that share it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Baseline(StrEnum):
    EMBEDDING = "embedding"
    MEAN = "mean"
    ZERO = "zero"
    END_OF_TEXT = "end-of-text"
    CORPUS = "corpus"


class Engine(StrEnum):
    LOCAL = "local"
    RAY = "ray"


Prompt = Annotated[str, typer.Argument(help="The text whose next token is explained.")]
Model = Annotated[
    str, typer.Option(help="A catalog name (see `lenses models`), a Hub id, a folder or a .gguf file.")
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, or auto for a model bigger than a device: all devices, then memory, then the "
        "disk. The best device by default.",
        metavar="NAME",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="The number format of the weights: float32 (the default), float64, bfloat16 or float16.",
        metavar="NAME",
    ),
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
    Path,
    typer.Argument(help="The prompts: CSV, TSV, TXT, JSONL, JSON, XLSX or Parquet, with a column `prompt`."),
]
Sources = Annotated[
    list[str],
    typer.Argument(
        help="The prompts: CSV, TSV, TXT, JSONL, JSON, XLSX or Parquet, with a column `prompt`. On Ray also "
        "several files, folders, patterns, or addresses such as s3://lists/*.csv."
    ),
]
RunsOn = Annotated[
    Engine, typer.Option("--engine", help="Where to compute: in this process, or on the workers of Ray.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Workers of Ray, each with the model: one a GPU by default, or for 4 CPUs."),
]
GpusPerWorker = Annotated[
    float | None, typer.Option(min=0, help="GPUs of each worker of Ray: 1 by default where there are any.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="A Ray cluster, or auto; by default that of RAY_ADDRESS, else one is started here."),
]
Folder = Annotated[Path, typer.Option("--output", "-o", help="The folder that the report is written into.")]
Results = Annotated[
    Path, typer.Option("--output", "-o", help="The folder that the results are written into.")
]
Quick = Annotated[
    list[str] | None,
    typer.Option("--lens", help="A lens; repeat for more. Those that read a trace once by default."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what was stopped in the folder.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Prompts in one pass of the model, at most.")]
Encoding = Annotated[str | None, typer.Option(help="The file's encoding; found out by default.")]
Delimiter = Annotated[
    str | None, typer.Option(help="comma, semicolon, tab, bar, none or a character; found out by default.")
]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line names the columns.")
]
CorpusFile = Annotated[Path, typer.Argument(help="The text: a UTF-8 file, better of 100,000 words or more.")]
LensFolder = Annotated[Path, typer.Option("--output", "-o", help="The folder that the lens is written into.")]
ClosedForm = Annotated[
    bool, typer.Option("--closed-form", help="Only the ridge regression: quick, less good.")
]
Minutes = Annotated[float, typer.Option(help="How long a fit may take in all.")]
FitSteps = Annotated[int | None, typer.Option(help="Just so many steps instead: the same lens each time.")]
FitTokens = Annotated[int, typer.Option(help="Tokens of the text for the closed form, at most.")]
Seed = Annotated[int, typer.Option(min=0, help="Which text is held out, and how the rest is shuffled.")]
PromptColumn = Annotated[str | None, typer.Option(help="The column of the prompts, if not `prompt`.")]
TargetColumn = Annotated[str | None, typer.Option(help="The column of the words, if not `target`.")]
