"""The lenses, in the order in which they are shown. Adding a lens is one file and one name here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_type_hints

from lenses.attribution import Claim
from lenses.errors import BadOption, UnknownLens
from lenses.lens import Lens, choices, fields
from lenses.methods.ablation import Ablation
from lenses.methods.conductance import Conductance
from lenses.methods.dla import DLA
from lenses.methods.ig_lens import IGLens
from lenses.methods.layer_ig import LayerIG
from lenses.methods.logit_lens import LogitLens
from lenses.methods.tuned_lens import TunedLens

if TYPE_CHECKING:
    from lenses.decoder import Decoder

LENSES: dict[str, type[Lens]] = {
    lens.name: lens for lens in (IGLens, LogitLens, TunedLens, DLA, LayerIG, Conductance, Ablation)
}


def get(name: str, **options: Any) -> Lens:
    """The lens of that name with these options; raises `UnknownLens` and `BadOption`."""
    if name not in LENSES:
        raise UnknownLens(f"there is no lens {name!r}: choose from {', '.join(LENSES)}")
    known = [f.name for f in fields(LENSES[name])]
    if unknown := set(options) - set(known):
        raise BadOption(f"{name} has no option {sorted(unknown)[0]!r}: it has {', '.join(known) or 'none'}")
    return LENSES[name](**options)


def quick() -> list[str]:
    """The names of the lenses that read a trace once, which a list is run with by default."""
    return [name for name in LENSES if not get(name).slow]


def having(decoder: Decoder, names: Iterable[str]) -> list[str]:
    """Those of these lenses that the model can have: for lists that nobody chose."""
    return [name for name in names if not get(name).available(decoder)]


def choose(
    names: list[str] | None = None,
    *,
    baseline: str | None = None,
    steps: int | None = None,
    depths: tuple[int, ...] | None = None,
    halves: bool = False,
    **shared: str | None,
) -> list[Lens]:
    """The named lenses (all by default), each given those of the common options that it has.

    `baseline` is a residual baseline, so it goes to lenses that claim a sum across depths; Captum's
    two start from a prompt and keep their own. What is `shared` (such as `readout`) goes to every lens
    that has it and can take its value. Raises `BadOption` where none of them can.
    """
    chosen = [type(get(name)) for name in names or list(LENSES)]
    asked = {name: value for name, value in shared.items() if value is not None}
    for name, value in asked.items():
        if not any(takes(lens, name, value) for lens in chosen):
            raise BadOption(f"none of the lenses that were chosen takes {name} {value!r}")
    made = []
    for lens in chosen:
        given: dict[str, Any] = {
            "baseline": baseline if lens.claim is Claim.ACROSS else None,
            "steps": steps,
            "depths": depths,
            "halves": halves or None,
        }
        has = [f.name for f in fields(lens)]
        given = {k: v for k, v in given.items() if v is not None and k in has}
        given |= {k: v for k, v in asked.items() if takes(lens, k, v)}
        made.append(get(lens.name, **given))
    return made


def takes(lens: Any, name: str, value: Any) -> bool:
    """Whether a lens's class has this option, and this value is one of its choices where it has choices."""
    if name not in [f.name for f in fields(lens)]:
        return False
    known = choices_of(lens, name)
    return not known or value in known


def choices_of(lens: Any, name: str) -> list[str]:
    """The words that an option of a lens can be; none for an option that is no choice of words."""
    return choices(get_type_hints(lens)[name])


def shared() -> dict[str, list[str]]:
    """The options that mean the same in every lens that has them, and all their choices."""
    found: dict[str, dict[str, None]] = {}
    for lens in LENSES.values():
        for f in fields(lens):
            if f.metadata.get("shared"):
                found.setdefault(f.name, {}).update(dict.fromkeys(choices_of(lens, f.name)))
    return {name: list(choices) for name, choices in found.items()}


def table() -> list[dict[str, str]]:
    """The registered lenses, a row each: what it measures and claims, its options and its source."""
    return [
        {
            "name": lens.name,
            "method": lens.title,
            "measures": lens.card.measures,
            "claims": CLAIMS[lens.claim],
            "options": ", ".join(f.name for f in fields(lens)) or "none",
            "source": lens.source,
        }
        for lens in LENSES.values()
    ]


CLAIMS = {
    Claim.LEVEL: "nothing: each depth is a reading by itself",
    Claim.ACROSS: "shares sum over depths",
    Claim.WITHIN: "sums within each depth",
}
