"""The tuned lens: what its translators keep to, how they are fitted, kept and found, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys

import numpy as np
import pytest
import torch

import lenses
from lenses import (
    batch,
    cli,
    corpus,
    fitting,
    measure,
    moments,
    prompts,
    readout,
    refining,
    registry,
    translators,
    tuned,
)
from lenses.attribution import Verdict, check
from lenses.decoder import Decoder
from lenses.errors import BadCorpus, BadOption, BadRun, UnsupportedLens
from lenses.fingerprint import fingerprint
from lenses.progress import finish
from lenses.target import Target
from lenses.translators import Translators
from tests import naive, tiny

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
QUICK = fitting.Settings(steps=25, tokens=1500)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LENSES_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Words in which each is more likely after some than after others."""
    draw, words = random.Random(0), [3]
    while len(words) < 4000:
        words.append(draw.choice([3 + (words[-1] * 7 + step) % 61 for step in (0, 1, 5)]))
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(" ".join(f"w{word}" for word in words))
    return path


def blank(family: str) -> Translators:
    own = tiny.decoder(family)
    return Translators(
        torch.zeros(own.blocks, own.width, own.width),
        torch.zeros(own.blocks, own.width),
        True,
        fingerprint(own),
    )


def trace(family: str) -> lenses.trace.Trace:
    return tiny.decoder(family).trace(tiny.IDS)


def levels(own: Decoder, read: lenses.trace.Trace, target: Target, made: Translators) -> np.ndarray:
    depths = range(own.blocks + 1)
    return measure.measure(own, read, target, "probability", translators=made).levels(depths).values


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_translators_of_zeros_are_the_logit_lens(family):
    found = levels(tiny.decoder(family), trace(family), TARGET, blank(family))
    plain = readout.levels(tiny.decoder(family), trace(family), *TARGET.positions, TARGET.token, range(4))
    assert (found == plain).all()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_levels_equal_their_naive_twin_and_end_at_the_models_own_probability(family):
    own, made = tiny.decoder(family), translators.load(tiny.tuned(family), tiny.decoder(family))
    found = tiny.lens(family, "tuned-lens").attribute(own, trace(family), TARGET)
    for depth in range(own.blocks):
        state = trace(family)[depth][-1]
        size = (state**2).mean() ** 0.5
        moved = state + made.weight[depth] @ state + size * made.bias[depth]
        (level,) = readout.level(own, moved[None], TARGET.token)
        assert found.values[depth] == pytest.approx(level, abs=1e-6)  # two orders of a float32 product
    assert found.end == pytest.approx(naive.levels(own.model, tiny.IDS, tiny.TARGET)[-1], abs=1e-6)


def test_a_target_of_several_tokens_has_the_product_of_their_levels():
    own, made = tiny.decoder("llama"), blank("llama")
    whole = levels(own, trace("llama"), Target(3, 22, (8,)), made)
    parts = [levels(own, trace("llama"), Target(*part), made) for part in ((3, 22), (4, 8))]
    assert whole == pytest.approx(parts[0] * parts[1], rel=1e-12)


def test_many_targets_read_at_once_are_those_read_alone():
    own, made = tiny.decoder("gpt2"), translators.load(tiny.tuned("gpt2"), tiny.decoder("gpt2"))
    wanted = [
        (own.trace(tiny.IDS[:end]), Target(end - 2, 7, more)) for end in (3, 4, 6) for more in ((), (9,))
    ]
    together = [measure.measure(own, *one, "probability", translators=made) for one in wanted]
    measure.remember(together)
    for found, (_, target) in zip(together, wanted, strict=True):
        alone = levels(own, own.trace(tiny.IDS[: target.position + 2]), target, made)
        assert found.levels(range(own.blocks + 1)).values == pytest.approx(alone, abs=1e-6)


def test_a_list_says_of_each_row_what_the_lens_says_alone():
    own, lens = tiny.decoder("gpt2"), tiny.lens("gpt2", "tuned-lens")
    texts = ["w3 w4", "w5 w6 w7", "w9"]
    rows = prompts.read("\n".join(["prompt", *texts]).encode(), "list.csv").rows
    for outcome in batch.run(own, rows, [lens]):
        alone = lenses.compare(own, outcome.row.prompt, lenses=[lens]).results[0]
        assert outcome.comparison.results[0].attribution.values == pytest.approx(
            alone.attribution.values, abs=1e-5
        )


@pytest.mark.parametrize("ridge", [0, 1e-6])
def test_the_closed_form_recovers_a_planted_affine_map(ridge):
    draw = torch.Generator().manual_seed(0)
    x, planted = torch.randn(900, 8, generator=draw), 0.3 * torch.randn(8, 9, generator=draw)
    z = moments.extended(x).double()
    y = x + (z @ planted.double().T).float() + ridge * torch.randn(900, 8, generator=draw)
    inner, cross = z.T @ z / len(z), (y - x).double().T @ z / len(z)
    found, whiten = moments._solved(inner, cross, x, y)
    assert found == pytest.approx(planted, abs=1e-3)  # the smallest ridge pulls by 1e-5
    unit = whiten.double() @ inner @ whiten.double().T
    assert unit == pytest.approx(torch.eye(9).double(), abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt_nofinal", "gemma2"])
def test_no_depth_ends_further_from_the_model_than_its_closed_form_or_the_logit_lens(family, text, tmp_path):
    made = finish(fitting.fitting(tiny.decoder(family), text, tmp_path / "lens", QUICK))
    loss = {name: np.array(values) for name, values in made.record["loss"].items()}
    rounding = 2e-3 * loss["closed form"] + 1e-5  # float16
    assert (loss["tuned"] <= loss["closed form"] + rounding).all()
    assert (loss["tuned"] <= loss["logit lens"] + rounding).all()
    assert loss["closed form"].mean() < loss["logit lens"].mean()
    assert made.scaled == (family != "opt_nofinal")


def test_the_refinement_takes_the_loss_below_the_closed_form(text, tmp_path):
    settings = fitting.Settings(steps=60, tokens=1500)
    loss = finish(fitting.fitting(tiny.decoder("llama"), text, tmp_path / "lens", settings)).record["loss"]
    assert np.mean(loss["tuned"]) < 0.98 * np.mean(loss["closed form"])


def test_a_fitted_lens_is_found_by_itself_and_survives_its_files(text, tmp_path):
    own = Decoder(tiny.model("gpt2"), tiny.tokenizer(), "gpt2")
    assert registry.get("tuned-lens").available(own).startswith("there is no tuned lens for gpt2 yet")
    assert "tuned-lens" not in registry.having(own, registry.LENSES)
    made = finish(fitting.fitting(own, text, tmp_path / "lens", fitting.Settings(closed_form=True)))
    assert registry.get("tuned-lens").available(own) == ""
    for folder in (None, str(tmp_path / "lens")):
        again = tuned.find(own, folder)
        assert torch.equal(again.weight, made.weight)
        assert torch.equal(again.bias, made.bias)
        assert again.record["corpus"]["name"] == "corpus.txt"
        assert len(again.record["loss"]["tuned"]) == own.blocks
    names = [r.attribution.lens for r in lenses.compare(own, tiny.PROMPT).results]
    assert names == list(registry.LENSES)


def test_the_same_seed_and_steps_give_the_same_lens(text, tmp_path):
    made = [
        finish(
            fitting.fitting(
                tiny.decoder("llama"), text, tmp_path / name, fitting.Settings(steps=3, tokens=1500)
            )
        )
        for name in ("one", "two")
    ]
    assert torch.equal(made[0].weight, made[1].weight)


def test_a_fit_that_was_stopped_goes_on_where_it_was(text, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "SAVE", 0.0)
    monkeypatch.setattr(fitting, "PATIENCE", 99)
    settings = fitting.Settings(steps=12, tokens=1500)
    own, folder = tiny.decoder("llama"), tmp_path / "lens"
    work = fitting.fitting(own, text, folder, settings)
    while not next(work).text.startswith("step 7:"):
        pass
    work.close()
    with pytest.raises(BadRun, match="add --resume"):
        finish(fitting.fitting(own, text, folder, settings))
    with pytest.raises(BadRun, match="its seed was another"):
        finish(fitting.fitting(own, text, folder, fitting.Settings(steps=12, tokens=1500, seed=1), True))
    told = []
    work = fitting.fitting(own, text, folder, settings, True)
    while True:
        try:
            told.append(next(work).text)
        except StopIteration as end:
            made = end.value
            break
    assert not any("closed form of depths" in line for line in told)
    assert next(line for line in told if line.startswith("step ")).startswith("step 7:")  # kept after step 6
    whole = finish(fitting.fitting(own, text, tmp_path / "whole", settings))
    assert made.weight == pytest.approx(whole.weight, abs=2e-3)  # float16, and sums in another order
    assert made.record["steps"] == 12
    with pytest.raises(BadRun, match="holds a tuned lens already"):
        finish(fitting.fitting(own, text, folder, settings, True))


@pytest.mark.parametrize("budget", [4 * 64 * 2, 4 * 64 * 2 * 17])
def test_the_memory_that_a_step_may_take_changes_no_gradient(budget, text, monkeypatch):
    own = tiny.decoder("llama")
    start = refining.Change(torch.zeros(3, 16, 17), True)
    states = [torch.randn(20, 16) for _ in range(4)]

    def stepped():
        refiner = refining.Refiner(own, start, torch.eye(17).expand(3, -1, -1))
        return refiner.step(states, 0.0, 0), refiner.first

    whole = stepped()
    monkeypatch.setattr(readout, "BUDGET", budget)
    parts = stepped()
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert parts[1] == pytest.approx(whole[1], abs=1e-6)


def clipped(gradient):
    norms = gradient.flatten(1).norm(dim=1)
    return gradient * (refining.CLIP / norms.clamp_min(refining.CLIP))[:, None, None]


def test_adam_is_pytorchs():
    refiner = refining.Refiner(
        tiny.decoder("llama"), refining.Change(torch.randn(3, 16, 17), True), torch.eye(17).expand(3, -1, -1)
    )
    theta = torch.nn.Parameter(refiner.theta.clone())
    adam = torch.optim.AdamW([theta], lr=1e-2, betas=refining.BETAS, weight_decay=refining.DECAY)
    for _ in range(5):
        gradient = torch.randn(3, 16, 17)
        theta.grad = gradient.clone()
        adam.step()
        refiner._adam(gradient, 1e-2)
    assert refiner.theta == pytest.approx(theta.detach(), abs=1e-5)


def test_a_depth_that_got_worse_goes_on_from_its_best_at_half_the_rate():
    start = torch.randn(3, 16, 17)
    refiner = refining.Refiner(
        tiny.decoder("llama"), refining.Change(start, True), torch.eye(17).expand(3, -1, -1)
    )
    refiner._adam(torch.randn(3, 16, 17), 1e-2)
    refiner.back(np.array([False, True, False]), start)
    assert refiner.rates.tolist() == [1, 0.5, 1]
    assert torch.equal(refiner.change().matrix[1], start[1])
    assert not torch.equal(refiner.change().matrix[0], start[0])


def test_the_gradient_is_that_of_the_plain_loss():
    own = tiny.decoder("gemma2")  # its softcap stands after the head
    states = [torch.randn(6, 16) for _ in range(4)]
    refiner = refining.Refiner(
        own, refining.Change(torch.zeros(3, 16, 17), True), torch.eye(17).expand(3, -1, -1)
    )
    loss = refiner.step(states, 0.0, 0)
    theta = torch.zeros(3, 16, 17, requires_grad=True)
    wanted, total = own.readout(states[-1]).softmax(-1), 0.0
    for depth in range(3):
        x = states[depth] / translators.size(states[depth])
        rows = (x + moments.extended(x) @ theta[depth].T) * translators.size(states[depth])
        read = own.resume(own.blocks, rows[:, None])[:, 0].log_softmax(-1)
        total = total + (wanted * (wanted.log() - read)).sum() / len(rows)
    total.backward()
    assert loss == pytest.approx(float(total) / 3, rel=1e-4)
    assert refiner.first == pytest.approx(0.1 * clipped(theta.grad), abs=1e-6)


def test_tokens_that_are_drawn_stand_for_those_that_are_not(monkeypatch):
    monkeypatch.setattr(refining, "LIKELY", 8)
    monkeypatch.setattr(refining, "SAMPLED", 14)
    draw, chance = torch.Generator().manual_seed(0), torch.randn(64).softmax(0)
    tokens, copies = refining.some_tokens(chance, draw)
    assert set(chance.topk(8).indices.tolist()) <= set(tokens.tolist())
    assert len(set(tokens.tolist())) == 22
    assert float(copies.exp().sum()) == pytest.approx(64, rel=1e-5)
    sums = []
    for _ in range(400):
        tokens, copies = refining.some_tokens(chance, draw)
        sums.append(float((chance[tokens] * copies.exp()).sum()))
    assert np.mean(sums) == pytest.approx(1, abs=0.01)  # unbiased: 400 draws


@pytest.mark.parametrize("family", ["llama", "gemma2", "cohere", "granite", "opt_350m", "gpt2"])
def test_the_logits_of_some_tokens_are_those_of_the_whole_head(family):
    own, tokens = tiny.decoder(family), torch.tensor([3, 60, 7])
    rows = trace(family)[-1]
    assert own.partly(tokens)(rows).detach() == pytest.approx(own.readout(rows)[:, tokens], abs=1e-5)


def test_a_large_vocabulary_takes_no_more_memory_than_the_budget(monkeypatch):
    own = tiny.decoder("llama")
    monkeypatch.setattr(readout, "BUDGET", 64 * 4 * 10)
    seen = []
    whole = refining._logits
    monkeypatch.setattr(
        refining, "_logits", lambda decoder, rows: seen.append(len(rows)) or whole(decoder, rows)
    )
    held = [torch.randn(33, 16) for _ in range(4)]
    finish(refining.diverging(own, held, None, ""))
    assert max(seen) == 5  # two lots of logits within the budget
    assert len(seen) == 7 * 4


# What is refused


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"width": 8}, "width 8, and llama has 3 of width 16"),
        ({"blocks": 2}, "for 2 blocks"),
        ({"fingerprint": "0" * 64}, "fitted on other weights"),
        ({"nan": True}, "not finite"),
    ],
)
def test_translators_of_another_model_are_refused(change, match, tmp_path):
    blocks, width = change.get("blocks", 3), change.get("width", 16)
    weight = torch.full((blocks, width, width), float("nan") if change.get("nan") else 0.1)
    known = change.get("fingerprint", fingerprint(tiny.decoder("llama")))
    Translators(weight, torch.zeros(blocks, width), True, known, {}).save(tmp_path)
    with pytest.raises(BadOption, match=match):
        tuned.find(tiny.decoder("llama"), str(tmp_path))


@pytest.mark.parametrize("damage", ["json", "schema", "tensors", "gone"])
def test_damaged_files_are_a_sentence(damage, tmp_path):
    Translators(torch.zeros(3, 16, 16), torch.zeros(3, 16), True, fingerprint(tiny.decoder("llama"))).save(
        tmp_path
    )
    record = tmp_path / translators.RECORD
    if damage == "json":
        record.write_text("{")
    elif damage == "schema":
        record.write_text("{}")
    elif damage == "tensors":
        (tmp_path / translators.TENSORS).write_bytes(b"nothing")
    else:
        (tmp_path / translators.TENSORS).unlink()
    with pytest.raises(BadOption, match=r"can't be read|its schema is"):
        tuned.find(tiny.decoder("llama"), str(tmp_path))
    with pytest.raises(BadOption, match="there is no tuned lens in"):
        tuned.find(tiny.decoder("llama"), str(tmp_path / "nowhere"))


def test_a_fingerprint_follows_the_weights_and_not_the_number_format():
    plain = fingerprint(tiny.decoder("llama"))
    for dtype, same in ((torch.float64, True), (torch.bfloat16, True)):
        other = Decoder(tiny.model("llama").to(dtype), tiny.tokenizer(), "another name")
        assert (fingerprint(other) == plain) == same
    changed = tiny.model("llama")
    changed.model.layers[1].mlp.up_proj.weight.data.mul_(1.01)
    assert fingerprint(Decoder(changed, tiny.tokenizer(), "llama")) != plain


def test_a_model_whose_weights_are_elsewhere_has_no_tuned_lens():
    from accelerate import cpu_offload

    own = Decoder(cpu_offload(tiny.model("llama"), torch.device("cpu")), tiny.tokenizer(), "llama")
    with pytest.raises(UnsupportedLens, match="offloaded"):
        fingerprint(own)


# The format of the package tuned-lens


def public(folder, family, tensors=None, **changed):
    own, draw = tiny.decoder(family), torch.Generator().manual_seed(0)
    parts = {"weight": (own.width, own.width), "bias": (own.width,)}
    state = {
        f"{depth}.{part}": torch.randn(*shape, generator=draw)
        for depth in range(own.blocks)
        for part, shape in parts.items()
    }
    folder.mkdir(exist_ok=True)
    torch.save(state if tensors is None else tensors, folder / "params.pt")
    config = {
        "base_model_name_or_path": family, "d_model": own.width, "num_hidden_layers": own.blocks,
        "bias": True, "base_model_revision": None, "unembed_hash": None, "lens_type": "linear_tuned_lens",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({**config, **changed}))
    return state


def test_a_lens_of_the_package_tuned_lens_reads_as_there(tmp_path):
    state, own = public(tmp_path, "llama"), tiny.decoder("llama")
    made = tuned.find(own, str(tmp_path))
    states = trace("llama").residual
    for depth in range(own.blocks):
        theirs = states[depth] + states[depth] @ state[f"{depth}.weight"].T + state[f"{depth}.bias"]
        assert made.translate([depth], states[depth : depth + 1])[0] == pytest.approx(theirs, abs=1e-5)


def test_a_lens_that_the_package_itself_saved_is_read(tmp_path, monkeypatch):
    nn = pytest.importorskip("tuned_lens.nn.lenses")
    # It looks for a class that newer versions of TransformerLens no longer have.
    monkeypatch.setattr("tuned_lens.model_surgery._transformer_lens_available", False)
    model = tiny.model("gpt2")
    theirs = nn.TunedLens.from_model(model)
    for one in theirs:
        torch.nn.init.normal_(one.weight)
        torch.nn.init.normal_(one.bias)
    theirs.save(tmp_path)
    own = Decoder(model, tiny.tokenizer(), "gpt2")
    found = levels(own, own.trace(tiny.IDS), TARGET, tuned.find(own, str(tmp_path)))
    states = model(torch.tensor([tiny.IDS]), output_hidden_states=True).hidden_states
    for depth in range(own.blocks):
        level = theirs(states[depth][0, -1], depth).softmax(-1)[TARGET.token]
        assert found[depth] == pytest.approx(float(level), abs=1e-6)
    model.lm_head.weight.data.add_(1.0)
    other = Decoder(model, tiny.tokenizer(), "gpt2")
    with pytest.raises(BadOption, match="fitted on another output matrix"):
        tuned.find(other, str(tmp_path))


class Malicious:
    def __reduce__(self):
        return os.system, ("touch /tmp/this-must-not-exist",)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        (Malicious(), "holds more than tensors"),
        ({"0.weight": torch.zeros(2)}, "1 tensors where"),
        ([1], "0 tensors"),
    ],
)
def test_public_artefacts_that_are_no_linear_lens_are_refused(tensors, match, tmp_path):
    public(tmp_path, "llama", tensors)
    with pytest.raises(BadOption, match=match):
        tuned.find(tiny.decoder("llama"), str(tmp_path))
    assert not os.path.exists("/tmp/this-must-not-exist")


def test_a_plain_pickle_is_never_run(tmp_path):
    public(tmp_path, "llama")
    (tmp_path / "params.pt").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(BadOption, match="holds more than tensors or is damaged"):
        tuned.find(tiny.decoder("llama"), str(tmp_path))
    assert not os.path.exists("/tmp/this-must-not-exist")


# The text and the command


def test_held_out_windows_are_never_fitted_on(text):
    found = finish(corpus.reading(text, tiny.decoder("llama"), 0))
    assert found.fit.shape[1] == 32
    fit, held = ({tuple(row) for row in part.tolist()} for part in (found.fit, found.held))
    assert held
    assert not fit & held
    other = finish(corpus.reading(text, tiny.decoder("llama"), 1))
    assert {tuple(row) for row in other.held.tolist()} != held


def test_a_window_begins_as_the_tokenizer_begins_a_prompt(text):
    own = Decoder(tiny.model("llama"), tiny.tokenizer(bos=True), "llama")
    found = finish(corpus.reading(text, own, 0))
    assert (found.fit[:, 0] == 1).all()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"w3 w4", "has 2 tokens"),
        ("w3 für".encode("latin-1") * 400, "is no UTF-8 text"),
        (b"", "has 0 tokens"),
    ],
)
def test_a_corpus_that_nothing_can_be_fitted_on_is_a_sentence(data, match, tmp_path):
    (tmp_path / "corpus.txt").write_bytes(data)
    with pytest.raises(BadCorpus, match=match):
        finish(corpus.reading(tmp_path / "corpus.txt", tiny.decoder("llama"), 0))


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["lenses", *map(str, arguments)])
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr()


def test_the_command_fits_and_the_lens_is_there_afterwards(text, tmp_path, monkeypatch, capsys):
    model = tiny.save("llama", tmp_path / "llama")
    out = tmp_path / "lens"
    fit = ("fit-tuned-lens", text, "--model", model, "-o", out, "--steps", 3, "--tokens", 1500)
    compare = ("compare", tiny.PROMPT, "--model", model, "--lens", "tuned-lens", "--format", "json")
    status, printed = command(monkeypatch, capsys, *compare)
    assert status == 1
    assert "fit one with `lenses fit-tuned-lens" in printed.err
    status, printed = command(monkeypatch, capsys, *fit)
    assert status == 0
    assert "closed form" in printed.out
    assert "in your cache" in " ".join(printed.out.split())
    status, printed = command(monkeypatch, capsys, *compare)
    assert status == 0
    assert len(json.loads(printed.out)["lenses"][0]["values"]) == 4
    status, printed = command(monkeypatch, capsys, *fit, "--resume")
    assert status == 1
    assert "holds a tuned lens already" in printed.err


@pytest.mark.parametrize(
    ("arguments", "status", "match"),
    [
        (("nowhere.txt", "-o", "lens"), 1, "No such file"),
        (("{text}", "-o", "{text}"), 1, "name of a folder"),
        (("{text}",), 2, "--output"),
        (("{text}", "-o", "lens", "--minutes", "0"), 1, "more than 0 minutes"),
        (("{text}", "-o", "lens", "--steps", "-1"), 1, "at least 0 steps"),
        (("{text}", "-o", "lens", "--tokens", "many"), 2, "--tokens"),
    ],
)
def test_wrong_input_to_the_command_is_one_line(
    arguments, status, match, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    found, printed = command(monkeypatch, capsys, "fit-tuned-lens", *(a.format(text=text) for a in arguments))
    assert found == status
    assert match in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("family", tiny.SOME)
def test_the_tuned_ledger_is_the_difference_of_tuned_levels_and_ends_at_the_models_own(family):
    own, folder = tiny.decoder(family), str(tiny.tuned(family))
    levels = registry.get("tuned-lens", folder=folder).attribute(own, trace(family), TARGET)
    ledger = registry.get("ig-lens", readout="tuned", folder=folder).attribute(own, trace(family), TARGET)
    np.testing.assert_allclose(ledger.values, np.diff(levels.values), atol=1e-12)
    assert check(ledger).verdict is Verdict.EXACT
    plain = registry.get("ig-lens").attribute(own, trace(family), TARGET)
    assert ledger.end == plain.end
    some = registry.get("ig-lens", readout="tuned", folder=folder, depths=(1,))
    np.testing.assert_allclose(
        some.attribute(own, trace(family), TARGET).values,
        [levels.values[1] - levels.values[0], levels.values[-1] - levels.values[1]],
        atol=1e-12,
    )


@pytest.mark.parametrize("baseline", ["mean", "zero"])
def test_a_tuned_ledger_closes_from_any_baseline_and_by_its_gradient(baseline):
    own, folder = tiny.decoder("gpt2"), str(tiny.tuned("gpt2"))
    options = {"readout": "tuned", "folder": folder, "baseline": baseline}
    observed = registry.get("ig-lens", **options).attribute(own, trace("gpt2"), TARGET)
    assert check(observed).verdict is Verdict.EXACT
    gradual = registry.get("ig-lens", estimator="gradient", steps=200, **options).attribute(
        own, trace("gpt2"), TARGET
    )
    # 200 Gauss–Legendre points in float32.
    np.testing.assert_allclose(gradual.values, observed.values, atol=2e-4)


@pytest.mark.parametrize("readout", ["bits", "entropy", "kl", "rank", "logit"])
def test_the_tuned_lens_reads_whatever_the_logit_lens_does(readout):
    own, folder = tiny.decoder("llama"), str(tiny.tuned("llama"))
    tuned_level = registry.get("tuned-lens", readout=readout, folder=folder).attribute(
        own, trace("llama"), TARGET
    )
    plain = registry.get("logit-lens", readout=readout).attribute(own, trace("llama"), TARGET)
    assert tuned_level.unit is plain.unit
    assert tuned_level.values[-1] == pytest.approx(plain.values[-1], abs=1e-6)
    assert (tuned_level.values[:-1] != plain.values[:-1]).any()


def test_halves_through_a_tuned_lens_are_refused():
    own = tiny.decoder("llama")
    lens = registry.get("ig-lens", readout="tuned", halves=True, folder=str(tiny.tuned("llama")))
    with pytest.raises(BadOption, match="halves can't be read through a tuned lens"):
        lens.attribute(own, trace("llama"), TARGET)
