"""A tuned lens fitted on a text: the closed form, refined by the divergence from the model's own answer.

Law: on held-out text no depth of what is saved is further from the model than its closed form or than the
logit lens, since each depth keeps the best that it had. The same seed, number of steps and machine give the
same lens. Source: Belrose et al. 2023, arXiv 2303.08112.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses import corpus, heldout, moments, tuned, unfinished
from lenses.comparison import provenance
from lenses.corpus import Corpus
from lenses.decoder import Decoder
from lenses.errors import BadOption
from lenses.fingerprint import fingerprint
from lenses.heldout import Best
from lenses.moments import Start
from lenses.progress import Progress
from lenses.refining import Change, Refiner, diverging
from lenses.translators import Translators

WINDOWS = 2
"""Windows of text in a step of the refinement."""

LOOKS = 6
"""How often held-out text is looked at in a whole refinement."""

PATIENCE, GAIN = 3, 2e-3
"""It ends early after so many looks in a row that took less than this part off the mean loss."""

SAVE = 60.0
"""Seconds between two states that a stopped fit can go on from."""


@dataclass(frozen=True)
class Settings:
    """How long and on how much: `tokens` for the closed form, `minutes` in all, or `steps` exactly."""

    closed_form: bool = False
    minutes: float = 45.0
    tokens: int = 60_000
    seed: int = 0
    steps: int | None = None

    def __post_init__(self) -> None:
        if not self.minutes > 0 or self.tokens < 1 or (self.steps is not None and self.steps < 0):
            raise BadOption("a fit needs more than 0 minutes, at least 1 token and at least 0 steps")


@dataclass
class Fit:
    """A fit under way: what does not change in it, and how far it is."""

    decoder: Decoder
    text: Corpus
    folder: Path
    settings: Settings
    identity: dict[str, Any]
    """What a fit that is gone on with must have in common with this one."""
    held: list[Tensor]
    by_size: bool
    start: Start
    logit_lens: Float[ndarray, " depth"]
    closed_form: Float[ndarray, " depth"]
    best: Best
    began: float
    """When it would have begun, on the monotonic clock, had it never been stopped."""
    refining_from: float = 0.0
    """Seconds after which the refinement began, and those that the last look will take."""
    reserve: float = 0.0
    steps: int = 0
    looks: int = 0
    stale: int = 0
    saved: float = 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def part(self) -> float:
        """How much of the refinement is done, 0…1: by steps where their number is given, else by time."""
        if self.settings.steps is not None:
            return self.steps / self.settings.steps if self.settings.steps else 1.0
        whole = 60 * self.settings.minutes - self.reserve - self.refining_from
        return min(1.0, (self.elapsed - self.refining_from) / whole) if whole > 0 else 1.0

    @property
    def closed_windows(self) -> int:
        """How many windows the closed form is made from."""
        return min(len(self.text.fit), -(-self.settings.tokens // self.text.fit.shape[1]))

    def windows(self) -> Tensor:
        """The text of the next step: first what the closed form did not see, then from the start again."""
        first = self.closed_windows + self.steps * WINDOWS
        return self.text.fit[torch.arange(first, first + WINDOWS) % len(self.text.fit)]

    def keep(self, refiner: Refiner) -> None:
        """Write down all that a stopped fit needs to go on."""
        tensors = {
            "closed": self.start.closed, "whiten": self.start.whiten, "best": self.best.matrix,
            **refiner.tensors(),
        }  # fmt: skip
        losses = {"logit_lens": self.logit_lens, "closed_form": self.closed_form, "loss": self.best.loss}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        listed = {name: one.tolist() for name, one in losses.items()}
        unfinished.keep(self.folder, tensors, {"settings": self.identity, **listed, **numbers})
        self.saved = time.monotonic()


NUMBERS = ("elapsed", "refining_from", "reserve", "steps", "looks", "stale")


def fitting(
    decoder: Decoder, path: Path, folder: Path, settings: Settings, resume: bool = False
) -> Generator[Progress, None, Translators]:
    """The translators, saved in the folder and, to be found by themselves, in the user's cache.

    Raises `BadCorpus`, `BadRun` and, for weights that are not in memory, `UnsupportedLens`.
    """
    began = time.monotonic()
    model = fingerprint(decoder)
    if not settings.closed_form:
        decoder.refuse_cut("a tuned lens that is refined", tail=True)
    text = yield from corpus.reading(path, decoder, settings.seed)
    identity = {
        "model": model, "corpus": text.record["sha256"], "seed": settings.seed, "tokens": settings.tokens
    }  # fmt: skip
    tensors, known = unfinished.begin(folder, resume, identity)
    folder.mkdir(parents=True, exist_ok=True)
    held = yield from heldout.reading(decoder, text)
    by_size = moments.scaled(decoder, held[-1][:8])
    common = {
        "decoder": decoder, "text": text, "folder": folder, "settings": settings, "identity": identity,
        "held": held, "by_size": by_size,
    }  # fmt: skip
    fit = _again(common, began, tensors, known) if known else (yield from _begun(common, began))
    if not settings.closed_form:
        yield from _refined(fit, tensors)
    made = yield from _finished(fit)
    dtype = getattr(torch, made.record["dtype"])
    for place in (folder, tuned.kept(decoder)):
        made.save(place, dtype)
    unfinished.end(folder)
    return made


def _begun(common: dict[str, Any], began: float) -> Generator[Progress, None, Fit]:
    """A new fit: its closed form, and the losses of that and of the logit lens."""
    decoder, text, held, by_size = (common[name] for name in ("decoder", "text", "held", "by_size"))
    windows = text.fit[: -(-common["settings"].tokens // text.fit.shape[1])]
    start = yield from moments.starting(decoder, windows, held, by_size)
    logit_lens = yield from diverging(decoder, held, None, "the logit lens on held-out text")
    looking = time.monotonic()
    change = Change(start.closed, by_size)
    closed_form = yield from diverging(decoder, held, change, "the closed form on held-out text")
    best = Best(torch.zeros_like(start.closed), logit_lens).or_better(start.closed, closed_form)
    fit = Fit(
        start=start, logit_lens=logit_lens, closed_form=closed_form, best=best, began=began, **common
    )  # fmt: skip
    fit.reserve = 2 * (time.monotonic() - looking)
    fit.refining_from = fit.elapsed
    return fit


def _again(common: dict[str, Any], began: float, tensors: dict[str, Tensor], known: dict[str, Any]) -> Fit:
    """A fit that was stopped, as far as it was."""
    start = Start(tensors["closed"], tensors["whiten"])
    best = Best(tensors["best"], np.array(known["loss"]))
    losses: dict[str, Any] = {name: np.array(known[name]) for name in ("logit_lens", "closed_form")}
    numbers = {name: known[name] for name in NUMBERS if name != "elapsed"}
    return Fit(start=start, best=best, began=began - known["elapsed"], **losses, **numbers, **common)


def _refined(fit: Fit, tensors: dict[str, Tensor]) -> Generator[Progress, None, None]:
    """Steps of Adam until the time or their number is over, or nothing is gained any more."""
    refiner = Refiner(fit.decoder, Change(fit.start.closed, fit.by_size), fit.start.whiten)
    if tensors:
        refiner.restore(tensors, fit.steps)
    fit.keep(refiner)
    while fit.part < 1 and fit.stale < PATIENCE:
        loss = refiner.step(moments.states(fit.decoder, fit.windows()), fit.part, fit.settings.seed)
        fit.steps += 1
        yield Progress(f"step {fit.steps}: {loss:.3f} nats from the model", int(1000 * fit.part), 1000)
        if int(LOOKS * fit.part) > fit.looks:
            fit.looks = int(LOOKS * fit.part)
            yield from _look(fit, refiner)
        if time.monotonic() - fit.saved > SAVE:
            fit.keep(refiner)
    if fit.stale < PATIENCE:
        yield from _look(fit, refiner)
    fit.keep(refiner)


def _look(fit: Fit, refiner: Refiner) -> Generator[Progress, None, None]:
    """Keep at each depth what is better on held-out text, put back what is worse, and count looks in vain."""
    change, before = refiner.change(), fit.best.loss.mean()
    loss = yield from diverging(fit.decoder, fit.held, change, f"step {fit.steps} on held-out text")
    worse = loss > fit.best.loss
    fit.best = fit.best.or_better(change.matrix, loss)
    refiner.back(worse, fit.best.matrix)
    fit.stale = 0 if fit.best.loss.mean() < (1 - GAIN) * before else fit.stale + 1


def _finished(fit: Fit) -> Generator[Progress, None, Translators]:
    """The best translators as they will be saved, with their losses after the rounding."""
    half = bool(fit.best.matrix.half().isfinite().all())
    rounded = fit.best.matrix.half().float() if half else fit.best.matrix
    change = Change(rounded, fit.by_size)
    found = yield from diverging(fit.decoder, fit.held, change, "the tuned lens on held-out text")
    losses = {"logit lens": fit.logit_lens, "closed form": fit.closed_form, "tuned": found}
    each = fit.text.fit.shape[1] - 1
    record = {
        "model": fit.decoder.name, "source": fit.decoder.source, "revision": fit.decoder.revision,
        "vocabulary": fit.decoder.vocabulary, "dtype": "float16" if half else "float32",
        "corpus": fit.text.record, "closed form positions": fit.closed_windows * each,
        "steps": fit.steps, "positions a step": WINDOWS * each, "seed": fit.settings.seed,
        "seconds": round(fit.elapsed), "held-out positions": len(fit.held[0]),
        "unit": "nats, KL(the model's final distribution ‖ the reading), mean over held-out positions",
        "loss": {name: [round(one, 5) for one in loss.tolist()] for name, loss in losses.items()},
        "provenance": provenance(),
    }  # fmt: skip
    weight, bias = rounded[..., :-1].contiguous(), rounded[..., -1].contiguous()
    return Translators(weight, bias, fit.by_size, fit.identity["model"], record)
