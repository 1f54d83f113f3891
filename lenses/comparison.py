"""One prompt, many lenses: everything that is shown, printed or saved comes from a `Comparison`.

`explain` applies one lens to a question; `compare` asks the question and applies all lenses, and
returns a value that `to_dict` turns into the JSON of the command line.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version
from typing import Any

from lenses import onsets, registry
from lenses.attribution import check, yardstick
from lenses.decoder import Decoder
from lenses.errors import NonFinite, UnsupportedLens
from lenses.lens import Lens
from lenses.outcome import Comparison, Result
from lenses.progress import Progress, finish
from lenses.question import Question, ask


def compare(
    decoder: Decoder,
    prompt: str,
    *,
    target: str | int | None = None,
    position: int | None = None,
    lenses: Sequence[str | Lens] | None = None,
    chat: bool = False,
) -> Comparison:
    """The prompt's target seen by each lens (all that the model can have by default).

    `target` is the text of a token, or its id; by default the model's most likely next token after
    `position` (the last). A lens that this model does not allow is left out with a warning. Raises
    `BadPrompt`, `UnknownLens`, `UnsupportedModel` and `NonFinite`.
    """
    chosen = [
        registry.get(lens) if isinstance(lens, str) else lens
        for lens in lenses or registry.having(decoder, registry.LENSES)
    ]
    question = ask(decoder, prompt, target=target, position=position, chat=chat)
    return finish(comparing(decoder, question, chosen))


def comparing(
    decoder: Decoder, question: Question, lenses: Sequence[Lens]
) -> Generator[Progress, None, Comparison]:
    """A question seen by each lens; one that this model or prompt does not allow is left out, and said.

    Raises `UnsupportedLens` where none is left.
    """
    results, refusals = [], []
    for lens in lenses:
        try:
            results.append((yield from explaining(decoder, question, lens)))
        except (UnsupportedLens, NonFinite) as refusal:
            refusals.append(f"{lens.name} is left out: {refusal}")
    if not results:
        raise UnsupportedLens("; ".join(refusals))
    return gather(decoder, question, results, refusals)


def explain(decoder: Decoder, question: Question, lens: Lens) -> Result:
    """One lens's answer to a question, judged and timed."""
    return finish(explaining(decoder, question, lens))


def explaining(decoder: Decoder, question: Question, lens: Lens) -> Generator[Progress, None, Result]:
    """`explain`, with its progress."""
    began = time.perf_counter()
    found = yield from lens.attributing(decoder, question.trace, question.target)
    seconds = time.perf_counter() - began
    return Result(lens.title, found, check(found), yardstick(found, question.delta), seconds)


def gather(
    decoder: Decoder, question: Question, results: Sequence[Result], refusals: Sequence[str] = ()
) -> Comparison:
    """A comparison out of a question and its results."""
    return Comparison(
        model=describe(decoder, question.readout_gap),
        prompt=question.prompt,
        target=question.target,
        target_text=question.target_text,
        pieces=question.pieces,
        probability=question.probability,
        results=tuple(results),
        warnings=(*question.warnings, *_coarse(decoder, results), *refusals),
        provenance=provenance(),
        setting_in=onsets.look(decoder, question.trace, question.target),
    )


def describe(decoder: Decoder, readout_gap: float) -> dict[str, Any]:
    """What a reader has to know of the model."""
    return {
        "name": decoder.name,
        "source": decoder.source,
        "revision": decoder.revision,
        "dtype": str(decoder.dtype).removeprefix("torch."),
        "device": str(decoder.device),
        "blocks": decoder.blocks,
        "width": decoder.width,
        "vocabulary": decoder.vocabulary,
        "readout_gap": readout_gap,
    }


def provenance() -> dict[str, str]:
    """The versions behind the numbers, and when they were made (UTC)."""
    return {**versions(), "created": datetime.now(UTC).isoformat(timespec="seconds")}


@functools.cache
def versions() -> dict[str, str]:
    """The versions of all that computes."""
    found = {name: version(name) for name in ("torch", "transformers", "captum")}
    return {"lenses": version("lensledger"), **found, "python": python_version()}


def _coarse(decoder: Decoder, results: Sequence[Result]) -> list[str]:
    """Gradients in half precision are noisy, and a reader should know."""
    found = [result.attribution for result in results]
    gradual = [a.lens for a in found if a.quadrature or a.plain_gap is not None]
    number = str(decoder.dtype).removeprefix("torch.")
    if number in ("float32", "float64") or not gradual:
        return []
    return [f"{', '.join(gradual)} took gradients in {number}, which are coarse: use float32 to trust them"]
