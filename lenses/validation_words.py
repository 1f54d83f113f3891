"""A validation in a few plain sentences, for those who read no table; nothing is said that its numbers
do not bear out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lenses.headline import points
from lenses.prompts.wording import counted
from lenses.validation import ALL, BLOCKS, CONTROLS, HALF_WIDTH, MONOTONE, NON_MONOTONE, RELEVANT, SWING

if TYPE_CHECKING:
    from lenses.validating import Validated
    from lenses.validation import Scores, Validation

WITHOUT = "without-first-two"

METHOD = (
    "Every block is skipped in turn: its input goes on as its output, at the target's own position (earlier "
    "positions stay as they were), and all later blocks run on. The drop is the model's own probability "
    "of the word less what is left of it: a drop above 0 says that the block helped.",
    "A method's score of a block is its share; the change that its level makes across the block; or, for "
    "integrals within each depth, how much the target position's part grows across the block.",
    f"A target is monotone if its probability, read at every depth, never swings more than {100 * SWING:.0f} "
    "points against its trend.",
    "ρ is Spearman's and τ is Kendall's rank correlation of scores and drops over the blocks of a prompt; "
    "what is shown is the mean over prompts, with its 95 % bootstrap interval over prompts.",
    "Top 1 and top 3: in how many prompts the block whose loss costs most has the highest score, or one of "
    "the three highest.",
    "The onset test is that of the IG-Lens paper: of the blocks that score lower than the one where the "
    "answer sets in, how many cost less when they are skipped. Its p-value deals each prompt's scores "
    "out to its blocks anew and finds the onset again; it is corrected by Holm for all lines of its table.",
    f"Average precision looks for the blocks that matter: those whose loss lowers p by more than "
    f"{100 * RELEVANT:.0f} % of itself. Beside it stands what an order at random gets on average.",
    f"Prompts needed: how many bring the interval of ρ to ± {HALF_WIDTH:g}, at the spread found here.",
)
CAVEATS = (
    "A skipped block hands on a state that the model never saw, so that a drop is not only what the block "
    "knew; other ablations (a mean in its place, another prompt's state) can rank blocks differently.",
    "Blocks stand in for one another: what one gives another may give when it is gone, so drops do not sum "
    "to anything, and a block that matters may show no drop.",
    "The first blocks make the states that all others read, and their loss ruins nearly everything; "
    "whatever ranks them high or low gains or loses by that alone. Hence each number without the "
    "first two.",
    "Two controls know nothing of a prompt: scores that are drawn, and the block's own number. A method that "
    "ranks no better than the number tells no more than that late blocks matter more.",
    "Prompts of one list are alike; the intervals speak of more such prompts, not of all language, and "
    "not of other models.",
)


def sentences(found: Validated) -> list[str]:
    """What the list came to."""
    result, scores = found.validation, found.validation.scores
    asked, held = len(found.findings.rows), len(scores.prompts)
    who = f"{counted(asked, 'prompt')} {'was' if asked == 1 else 'were'} asked of"
    where = "every block was skipped in turn, at the target's own position"
    told = [f"{who} {found.findings.model['name']}; in {held} of them {where}."]
    if asked > held:
        told.append(f"{counted(asked - held, 'prompt')} could not be held against anything.")
    first, later = scores.drops[:, :2].mean(), scores.drops[:, 2:]
    if later.size:
        told.append(
            f"Skipping one of the first two blocks costs {points(abs(first))} of probability on average"
            f"{' (a gain)' if first < 0 else ''}, any other block {points(abs(later.mean()))}"
            f"{' (a gain)' if later.mean() < 0 else ''}; {scores.relevant.mean():.0%} of all blocks matter."
        )
    told += ranked(result)
    said = _without_twin(scores)
    told += [sentence for lens in said if (sentence := _split(result.rows, lens))]
    return [*told, *_needed(result.rows, said)]


def ranked(result: Validation) -> list[str]:
    """How well each method ranks the blocks, and which does so better than which."""
    said = _without_twin(result.scores)
    told = [_lens(result.rows, lens) for lens in said]
    if len(said) < len(result.scores.titles):
        told.append(
            "The logit lens scores blocks as IG-Lens does, since the steps of its levels are the shares: "
            "what is said of one holds for the other."
        )
    return told + _compared(result.differences, said)


def _without_twin(scores: Scores) -> dict[str, str]:
    """The titles of the lenses, but for the logit lens where it scores every block as IG-Lens does."""
    titles = dict(scores.titles)
    if {"ig-lens", "logit-lens"} <= set(titles):
        one, other = (scores.values[list(titles).index(lens)] for lens in ("ig-lens", "logit-lens"))
        if np.allclose(one, other, atol=1e-9, equal_nan=True):
            del titles["logit-lens"]
    return titles


def _lens(rows: pd.DataFrame, lens: str) -> str:
    whole, rest = (_row(rows, lens, ALL, blocks) for blocks in BLOCKS)
    told = f"{whole['title']}: "
    if not whole["prompts"]:
        return f"{told}no prompt in which it could be ranked."
    told += f"{_rho(whole)} over all blocks, and its highest score is on the block that costs most in "
    told += f"{whole['top1']:.0%} of prompts"
    if rest["prompts"]:
        told += f"; {_rho(rest)} and {rest['top1']:.0%} without the first two"
    test = f"{whole['onset_test']:.0%} against {whole['onset_chance']:.0%} by chance"
    return f"{told}. Onset test: {test} ({_p(whole['p_holm'])})."


def _compared(differences: pd.DataFrame, titles: dict[str, str]) -> list[str]:
    """Which method ranks better than which, and than the block's number, beyond what prompts vary."""
    told = []
    for line in differences.to_dict("records"):
        known = {line["lens"], line["other"]} <= set(titles)
        if line["blocks"] != WITHOUT or not line["prompts"] or not known:
            continue
        one, other, mean = titles[line["lens"]], titles[line["other"]], line["mean"]
        if line["other"] in CONTROLS:
            other = "the mere number of a block"
        if line["low"] > 0 or line["high"] < 0:
            better, worse = (one, other) if mean > 0 else (other, one)
            better = better[:1].upper() + better[1:]
            low, high = sorted((abs(line["low"]), abs(line["high"])))
            told.append(
                f"{better} ranks better than {worse} without the first two blocks, by {abs(mean):.2f} "
                f"({low:.2f} to {high:.2f})."
            )
        elif line["other"] in CONTROLS:
            told.append(f"{one} can't be told from {other} without the first two blocks.")
    return told


def _split(rows: pd.DataFrame, lens: str) -> str:
    """Monotone against non-monotone targets; nothing of a control."""
    one, other = (_row(rows, lens, subset, WITHOUT) for subset in (MONOTONE, NON_MONOTONE))
    if lens in CONTROLS or not one["prompts"] or not other["prompts"]:
        return ""
    return (
        f"{one['title']} without the first two blocks: {_rho(one)} in {one['prompts']} monotone targets, "
        f"{_rho(other)} in {other['prompts']} others."
    )


def _needed(rows: pd.DataFrame, titles: dict[str, str]) -> list[str]:
    """How many prompts a narrow interval takes."""
    found = {title: _row(rows, lens, ALL, "all")["needed"] for lens, title in titles.items()}
    counts = [f"{n:.0f} ({title})" for title, n in found.items() if title not in CONTROLS.values() and n == n]
    if not counts:
        return []
    return [f"Prompts like these that bring the interval of ρ to ± {HALF_WIDTH:g}: {', '.join(counts)}."]


def _row(rows: pd.DataFrame, lens: str, subset: str, blocks: str) -> dict[Any, Any]:
    chosen = rows[(rows["lens"] == lens) & (rows["subset"] == subset) & (rows["blocks"] == blocks)]
    return chosen.iloc[0].to_dict()


def _rho(row: dict[Any, Any]) -> str:
    told = f"ρ = {row['spearman']:.2f}"
    if np.isfinite(row["spearman_low"]):
        told += f" ({row['spearman_low']:.2f} to {row['spearman_high']:.2f})"
    return told.replace("-", "−")


def _p(value: float) -> str:
    if np.isnan(value):
        return "no p-value"
    return "p < 0.001 after Holm" if value < 0.001 else f"p = {value:.2g} after Holm"
