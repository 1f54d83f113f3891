"""One prompt, many lenses: everything that is shown, printed or saved comes from a `Comparison`.

`ask` reads the prompt once and proves the readout on it; `explain` applies one lens to it; `compare`
does both for all lenses and returns a value that `to_dict` turns into the JSON of the command line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses import readout, registry, tokens
from lenses import target as targets
from lenses.attribution import check, yardstick
from lenses.decoder import Decoder
from lenses.errors import NonFinite, UnsupportedLens
from lenses.lens import Lens
from lenses.outcome import Comparison, Result
from lenses.proof import agree
from lenses.target import Target
from lenses.trace import Trace


@dataclass(frozen=True)
class Question:
    """A prompt, read once: its trace, the target, and the model's own probabilities there."""

    prompt: tokens.Prompt
    trace: Trace
    target: Target
    target_text: str
    probabilities: Float[ndarray, " vocabulary"]
    delta: float
    """Δp: the target's probability less what depth 0 reads."""
    readout_gap: float
    warnings: tuple[str, ...]

    @property
    def probability(self) -> float:
        return float(self.probabilities[self.target.token])


def compare(
    decoder: Decoder,
    prompt: str,
    *,
    target: str | int | None = None,
    position: int | None = None,
    lenses: Sequence[str | Lens] | None = None,
    chat: bool = False,
) -> Comparison:
    """The prompt's target seen by each lens (all registered lenses by default).

    `target` is the text of a token, or its id; by default the model's most likely next token after
    `position` (the last). A lens that this model does not allow is left out with a warning. Raises
    `BadPrompt`, `UnknownLens`, `UnsupportedModel` and `NonFinite`.
    """
    chosen = [registry.get(lens) if isinstance(lens, str) else lens for lens in lenses or registry.LENSES]
    question = ask(decoder, prompt, target=target, position=position, chat=chat)
    results, refusals = [], []
    for lens in chosen:
        try:
            results.append(explain(decoder, question, lens))
        except (UnsupportedLens, NonFinite) as refusal:
            refusals.append(f"{lens.name} is left out: {refusal}")
    if not results:
        raise UnsupportedLens("; ".join(refusals))
    return gather(decoder, question, results, refusals)


def ask(
    decoder: Decoder,
    text: str,
    *,
    target: str | int | None = None,
    position: int | None = None,
    chat: bool = False,
) -> Question:
    """Read the prompt, choose the target, and prove the readout on this very prompt."""
    prompt = tokens.encode(decoder.tokenizer, text, chat)
    place = targets.at(prompt, position)
    trace = decoder.trace(prompt.ids)
    own = _softmax(decoder.own(prompt.ids, [place])[0].double().cpu().numpy())
    read = _softmax(decoder.readout(trace[-1][place : place + 1])[0].double().cpu().numpy())
    if not np.isfinite(own).all():
        raise NonFinite(
            f"the model's own probabilities after token {place} are not numbers (its logits hold "
            "infinities or NaN): nothing can be explained there"
        )
    gap = float(np.abs(own - read).max())
    agree(decoder, gap, f"of this prompt, put back in at depth {decoder.blocks}")
    chosen, warned = targets.choose(decoder.tokenizer, prompt, place, own, target)
    start = readout.level(decoder, trace[0][place : place + 1], chosen.token)[0]
    return Question(
        prompt, trace, chosen, tokens.text_of(decoder.tokenizer, chosen.token), own,
        delta=float(own[chosen.token] - start),
        readout_gap=max(gap, decoder.readout_gap),
        warnings=(*prompt.warnings, *warned, *_long(decoder, prompt)),
    )  # fmt: skip


def explain(decoder: Decoder, question: Question, lens: Lens) -> Result:
    """One lens's answer to a question, judged and timed."""
    began = time.perf_counter()
    found = lens.attribute(decoder, question.trace, question.target)
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
        probability=question.probability,
        results=tuple(results),
        warnings=(*question.warnings, *_coarse(decoder, results), *refusals),
        provenance=provenance(),
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
    return {
        "lenses": version("lensledger"),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "captum": version("captum"),
        "python": python_version(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _softmax(logits: Float[ndarray, " vocabulary"]) -> Float[ndarray, " vocabulary"]:
    with np.errstate(invalid="ignore"):
        powers = np.exp(logits - logits.max())
        return powers / powers.sum()


def _long(decoder: Decoder, prompt: tokens.Prompt) -> list[str]:
    limit = decoder.positions.tokens
    if limit is None or len(prompt.tokens) <= limit:
        return []
    return [
        f"the prompt has {len(prompt.tokens)} tokens, more than the {limit} that the model was made for: "
        "its prediction may be poor"
    ]


def _coarse(decoder: Decoder, results: Sequence[Result]) -> list[str]:
    """Gradients in half precision are noisy, and a reader should know."""
    gradual = [result.attribution.lens for result in results if result.attribution.quadrature]
    number = str(decoder.dtype).removeprefix("torch.")
    if number in ("float32", "float64") or not gradual:
        return []
    return [f"{', '.join(gradual)} took gradients in {number}, which are coarse: use float32 to trust them"]
