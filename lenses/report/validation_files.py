"""The files of a validation: a page for people, the results for programs, and every drop.

`drops.parquet` has a row a prompt, method and block: columns `row`, `id`, `group`, `prompt`, `target`,
`probability`, `monotone`, `lens`, `block`, `score`, `drop`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from lenses.report.validation_page import html
from lenses.validating import Validated
from lenses.validation import Scores

VALIDATION_FILES = ("validation.html", "validation.json", "drops.parquet")


def write_validation(folder: Path, found: Validated) -> None:
    """The files of a validation, into a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "validation.json", "w", encoding="utf-8") as file:
        json.dump(found.to_dict(), file, ensure_ascii=False, allow_nan=False, indent=1)
        file.write("\n")
    drops(found.validation.scores).to_parquet(folder / "drops.parquet", index=False, compression="zstd")
    (folder / "validation.html").write_text(html(found), encoding="utf-8")


def drops(scores: Scores) -> pd.DataFrame:
    """Every score and drop, in the columns of `drops.parquet`."""
    count, blocks = scores.drops.shape
    about = scores.prompts[["row", "id", "group", "prompt", "target", "probability"]].assign(
        monotone=scores.subset("monotone")
    )
    repeated = about.loc[about.index.repeat(blocks)].reset_index(drop=True)
    frames = [
        repeated.assign(
            lens=lens, block=np.tile(np.arange(blocks), count), score=values.ravel(),
            drop=scores.drops.ravel(),
        )
        for lens, values in zip(scores.titles, scores.values, strict=True)
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)
