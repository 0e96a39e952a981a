"""One contract for all schemes: they train, replay from their seed, agree between engines, bound what they say, draw
the noise they say, and are priced or refused with a reason. A new preset is one more row in `CASES`.
"""

from __future__ import annotations

import doctest
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import isfinite, isinf, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.accounting import worst
from dpfl_audit.audit.setup.config import OLD_NAMES, parse_config
from dpfl_audit.audit.setup.template import config_template
from dpfl_audit.defenses import engine as engines
from dpfl_audit.defenses import randomness
from dpfl_audit.defenses.data.dataset import Dataset, make
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.federation import Federation, State, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.presets.base import KINDS
from dpfl_audit.defenses.releases import Release
from dpfl_audit.defenses.scheme import Context, Scheme, Step
from dpfl_audit.defenses.steps import components, perturb
from dpfl_audit.defenses.wire import SERVER, Message, Parcel, Wire
from scipy.stats import kstest, laplace, norm
from sklearn.datasets import load_digits
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 6
SGD = LocalTraining(optimiser="sgd", lr=0.1, batch_size=16)
ONE_STEP = replace(SGD, batch_size=64)  # all of a client's records at once


@dataclass(frozen=True)
class Case:
    """A preset with small parameters.

    noise: where noise is the only difference to a noise-free replay: the first round's "uploads", the "broadcast" after
    it, or None.
    scale: what the ledger's std is multiplied by there. sparse: only components that are not 0 get noise (the ledger's
    std is the root mean square over all). law: of the noise. proven: who is proven a finite ε for a client, zero_out.
    """

    preset: str
    parameters: dict[str, object]
    local: LocalTraining = SGD
    noise: str | None = "uploads"
    scale: float = 1.0
    sparse: bool = False
    law: str = "gaussian"
    proven: tuple[str, ...] = ()
    name: str = field(default="")

    def __str__(self) -> str:
        return self.name or self.preset


# 2 rounds, 2 bands: (3 − 2x)/(1 − x²) is least at x = (3 − √5)/2, and C = ((√(1 − x²), 0), (x, 1)); this is 1/C_00
BAND_2 = 1 / sqrt(1 - ((3 - sqrt(5)) / 2) ** 2)
BOTH, DOWN = ("server", "downlink"), ("downlink",)
FORM = {"sigma": 1.0, "lam": 2.0, "form": "scaled"}
FEWER = {"participants": 4, "clip": 0.5}


def central(preset: str, parameters: dict[str, object], **more: Any) -> Case:
    """Noise of the server alone, which proves something to those who get the model."""
    return Case(preset, parameters, **{"noise": "broadcast", "proven": DOWN, **more})


def correlated(preset: str, parameters: dict[str, object], **more: Any) -> Case:
    return central(preset, {"clip": 0.5, **parameters}, law="correlated", **more)


CASES = [
    Case("fedavg", {}, noise=None),
    Case("local-gaussian", {"noise_multiplier": 2.0}, proven=BOTH),
    central("central-gaussian", FEWER),
    central("central-gaussian", {**FEWER, "sampling": "fixed"}, name="central-gaussian fixed"),
    central("adaptive-clip", {"participants": 4, "beta": 0.0}),
    # (1 − β) of it
    central("adaptive-clip", {**FEWER, "sampling": "poisson"}, scale=0.1, name="adaptive-clip poisson"),
    correlated("dp-ftrl", {"participants": 3}),
    correlated("dp-ftrl", {"restart": 1, "honaker": False, "momentum": 0.9}, name="dp-ftrl restarted"),
    correlated("band-mf", {"participants": 3}, scale=BAND_2),
    correlated("blt", {"participants": 3}),
    Case("distributed-gaussian", {"clip": 0.5}, law="discrete", proven=BOTH),
    Case(
        "distributed-gaussian",
        {"participants": 4, "dropout": 0.2, "bits": 8, "granularity": 0.02},
        noise=None,
        proven=BOTH,
        name="distributed-gaussian 8 bits",
    ),
    Case("ldp", {"sigma": 2.0}, proven=BOTH),
    Case("ldp", {"sigma": 2.0, "clip": "median", "per_layer": True, "participants": 4}, noise=None, name="ldp median"),
    central("cdp", {"participants": 4}, proven=()),
    central("cdp", {**FEWER, "noise_on": "mean"}, name="cdp constant"),
    Case("lcdp", {"sigma_cdp": 0.0, "top": 0.5}, sparse=True, name="lcdp ldp-only"),
    central("lcdp", {"sigma_ldp": 1e-9, "noise": "before_momentum"}, scale=0.5, proven=()),
    central("lcdp", {"sigma_ldp": 1e-9, "noise": "after_momentum"}, name="lcdp after", proven=()),
    Case("fednore1", {"sigma": 2.0, "lam": 5.0, "clip": 0.5, "per_layer": False}, proven=BOTH),
    Case("fednore1", {"sigma": 2.0, "lam": 5.0}, noise=None, name="fednore1 median"),
    Case("fednore2", {**FORM, "clip": 0.5}, proven=BOTH),
    Case("fednore12", {**FORM, "clip": 0.5}, proven=BOTH),
    Case("fednore2", FORM, noise=None, name="fednore2 median"),
    Case("fednore12", FORM, noise=None, name="fednore12 median"),
    Case("nbafl", {"mu": 0.1, "clip": 2.0}, proven=BOTH),
    central("naafl", {"clip": 2.0}),
    Case("geometric", {"participants": 4, "clip": 2.0, "shorten": 0.8}, proven=BOTH),
    Case("laplace", {"clip": 20.0}, law="laplace", proven=BOTH),
    *(
        Case(
            "component",
            {"K": 3, "threshold": 0.1},
            replace(SGD, optimiser=o, lr=0.01),
            proven=BOTH,
            name=f"component {o}",
        )
        for o in ("sgd", "momentum", "adam", "rmsprop")
    ),
    Case(
        "component",
        {"K": 3, "dropout": 0.2, "sigma": 0.01, "share": "update", "epsilon": 1e9},
        noise=None,
        name="component private",
    ),
    Case("component", {"K": 3, "threshold": 0.1, "reading": "code"}, noise=None, proven=BOTH, name="component code"),
    Case(
        "component",
        {"K": 3, "reading": "code", "sigma": 0.1, "epsilon": 1e9},
        noise=None,
        name="component code, private",
    ),
    Case("iteration-laplace", {"b": 4, "E": 3, "zeta": 2.0}, law="laplace", proven=BOTH),
    Case("iteration-laplace", {"order": 2}, law="laplace", name="iteration-laplace L2"),
    Case("iteration-gaussian", {"b": 4, "E": 3, "zeta": 2.0}, proven=BOTH),
    Case("iteration-gaussian", {"order": 2}, proven=BOTH, name="iteration-gaussian L2"),
    Case("anonymous-gossip", {"neighbours": 2}, proven=BOTH),
    Case("anonymous-leader", {}, proven=BOTH),
    Case("thesis-baseline", {}, proven=BOTH),
    Case("dpsgd", {}, replace(SGD, epochs=None, steps=1), scale=0.1, proven=BOTH),
    *(
        Case("adap-dpfl", {"threshold": threshold}, scale=0.1, proven=BOTH, name=f"adap-dpfl {threshold}")
        for threshold in ("norms", "gradient", "constant")
    ),
    Case("ldp-fl", {"radius": 0.2}, noise=None, proven=BOTH),
    Case("ldp-fl", {"range": "adaptive"}, noise=None, proven=BOTH, name="ldp-fl adaptive"),
    Case("fed-cdp", {}, ONE_STEP, scale=0.1, proven=BOTH),
    Case("fed-cdp", {"batches": "poisson"}, ONE_STEP, scale=0.1, proven=BOTH, name="fed-cdp poisson"),
    central("fed-sdp", {"participants": 4}),
    Case("fed-alpha-cdp", {"schedule": "cyclic"}, ONE_STEP, scale=0.1),
    Case("fed-alpha-cdp", {"sensitivity": "paper"}, noise=None, name="fed-alpha-cdp paper"),
    Case("dp-dyns", {"batches": "disjoint"}, ONE_STEP, scale=0.1),
    Case("dp-dyns", {"noise_on": "clip"}, ONE_STEP, scale=0.1, proven=BOTH, name="dp-dyns clip"),
    Case("privatedl", {}),
    Case("privatedl", {"mechanism": "laplace", "share": "update"}, law="laplace", name="privatedl laplace"),
]
ALL = pytest.mark.parametrize("case", CASES, ids=str)
NOISY = pytest.mark.parametrize("case", [c for c in CASES if c.noise], ids=str)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16).float(), torch.tensor(y)
    return make("digits", (x[:900], y[:900]), (x[900:1300], y[900:1300]), (x[1300:], y[1300:]), 10, {})


def clients() -> list[Tensor]:
    return [rows[: 40 - 3 * (i % 3)] for i, rows in enumerate(torch.arange(900).split(40)[:CLIENTS])]


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(dtype)


def example(name: str) -> dict[str, object]:
    return dict(PRESETS[name].example)


def scheme_of(case: Case, rounds: int = 2) -> Scheme:
    preset = PRESETS[case.preset]
    population = Population(tuple(len(c) for c in clients()), Layout.of(net()))
    return preset.scheme(preset.parameters(**{"rounds": rounds, **case.parameters}), case.local, population)


def run(
    scheme: Scheme, digits: Dataset, dtype: torch.dtype = torch.float32, engine=batched, seed: int = 3
) -> tuple[State, list[Message]]:
    messages: list[Message] = []
    (state,) = run_many([Federation(scheme, net(dtype), digits, clients(), seed, Wire(messages.append))], engine)
    return state, messages


@dataclass(frozen=True)
class Trained:
    """A case's training with seed 3. blocks: key and counter of every block of the keystream that was drawn."""

    state: State
    messages: list[Message]
    blocks: list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def trained(digits) -> Callable[[str], Trained]:
    """Each case once."""

    def once(name: str) -> Trained:
        used, words = list[tuple[bytes, bytes]](), randomness.aes_words

        def drawn(key: bytes, counter: bytes, count: int) -> Tensor:
            used.append((key, counter))
            return words(key, counter, count)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(randomness, "aes_words", drawn)
            return Trained(*run(scheme_of(next(case for case in CASES if str(case) == name)), digits), used)

    return cache(once)


def silence(patch: pytest.MonkeyPatch) -> None:
    """Every draw of DP noise is 0."""
    for module in (perturb, engines):
        patch.setattr(module, "draw", lambda mechanism, noise_std, dim, rng: torch.zeros(dim))


def test_every_preset_has_a_case():
    assert {case.preset for case in CASES} == set(PRESETS)


@pytest.mark.few(18)
@ALL
def test_it_trains_and_replays_from_its_seed_bit_by_bit(case, digits, trained):
    it, first = trained(str(case)), trained(str(case)).messages
    second, other = (run(scheme_of(case), digits, seed=s)[1] for s in (3, 4))
    assert it.state.round == 2
    assert all(bool(torch.isfinite(m.vector).all()) for m in it.state.models.values())
    assert [m.id for m in first] == [m.id for m in second]
    assert all(torch.equal(a.vector, b.vector) and a.side == b.side for a, b in zip(first, second))
    assert not torch.equal(first[-1].vector, other[-1].vector)


@pytest.mark.few(20)
@ALL
def test_the_batched_engine_agrees_with_the_looped_oracle(case, digits):
    ends = [run(scheme_of(case), digits, torch.float64, engine)[0].models for engine in (looped, batched)]
    for party, parcel in ends[0].items():
        scale = max(1.0, float(parcel.vector.abs().max()))
        apart = (parcel.vector - ends[1][party].vector).abs() > 1e-9 * scale
        # Adam's steps are nearly equal: rounding decides between two at the edge of the top k.
        assert apart.sum() <= (4 if case.sparse else 0)


@pytest.mark.few(13)
@NOISY
def test_stored_messages_hold_the_noise_the_ledger_states(case, digits, trained, monkeypatch):
    """Messages minus a replay without noise are draws of the stated law and std; 2/3 and 3/2 of it are rejected."""
    noisy = trained(str(case)).messages
    silence(monkeypatch)
    _, silent = run(scheme_of(case), digits)
    replayed = {m.id: m.vector for m in silent}
    draws = []
    for message in (m for m in noisy if stands_for_noise(m, case)):
        (drawn,) = {r.id: r for r in revealed(message) if r.mechanism != "none"}.values()
        assert drawn.mechanism == case.law
        silent_one = replayed[message.id]
        sent = silent_one != 0 if case.sparse else torch.ones_like(silent_one, dtype=torch.bool)
        std = drawn.noise_std * case.scale / sqrt(sent.double().mean())
        draws.append((message.vector - silent_one)[sent].double() / std)
    sample = torch.cat(draws).numpy()
    law = norm() if case.law != "laplace" else laplace(scale=1 / sqrt(2))
    assert kstest(sample, law.cdf).pvalue > 0.001  # 30 cases: at 0.01 every fourth new keystream would fail one
    for wrong in (2 / 3, 3 / 2):
        assert kstest(sample / wrong, law.cdf).pvalue < 1e-6


@ALL
def test_no_block_of_the_keystream_is_drawn_twice(case, trained):
    """Of noise and of coins: two values with the same noise would tell their difference. Correlated noise alone takes
    rows of its one chain again, by design."""
    used = trained(str(case)).blocks
    assert case.law == "correlated" or len(used) == len(set(used))


def revealed(message: Message) -> frozenset[Release]:
    return Parcel(message.vector, releases=message.releases, inherits=message.inherits).revealed


def stands_for_noise(message: Message, case: Case) -> bool:
    if case.noise == "broadcast":
        return message.sender_party == SERVER and message.round == 1
    upload = message.sender_party not in (SERVER, *message.receiver_parties) and message.round == 0
    return upload and message.kind == scheme_of(case).share


@dataclass(frozen=True)
class Checked:
    """A step, and a check that the bound on what it hands on is true (noise apart, which a bound does not speak of)."""

    step: Step
    seen: list[float]

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        check_bound(parcel, context.start, self.seen)
        after = self.step(parcel, context)
        if after.releases == parcel.releases:
            check_bound(after, context.start, self.seen)
        return after


@dataclass(frozen=True)
class CheckedGather:
    gather: Callable[[Sequence[Parcel], Context], list[Parcel]]
    seen: list[float]

    def __call__(self, parcels: Sequence[Parcel], context: Context) -> list[Parcel]:
        gathered = self.gather(parcels, context)
        for parcel in gathered:
            check_bound(parcel, context.start, self.seen)
        return gathered


def check_bound(parcel: Parcel, start: Tensor, seen: list[float]) -> None:
    """A bound is on the value, or on its distance from the model that the round began with."""
    if parcel.bound is None:
        return
    bound = parcel.bound
    sizes = []
    for vector in (parcel.vector.double(), parcel.vector.double() - start.double()):
        if isinstance(bound.norm, Tensor):
            sizes.append(float((vector.abs() - bound.norm.double()).max()) + 1)
        else:
            sizes.append(float(torch.linalg.vector_norm(vector, bound.order)) / max(bound.norm, 1e-30))
    assert min(sizes) <= 1 + 1e-5
    seen.append(min(sizes))


@ALL
def test_clip_bounds_hold_after_every_step(case, digits, monkeypatch):
    scheme, seen = scheme_of(case), []
    scheme = replace(
        scheme,
        client=tuple(Checked(step, seen) for step in scheme.client),
        gather=tuple(CheckedGather(gather, seen) for gather in scheme.gather),
    )
    scheme = replace(scheme, local=replace(scheme.local, lr=30 * scheme.local.lr))  # so that every clip bites
    silence(monkeypatch)
    _, messages = run(scheme, digits)
    bounded = {r.bound_norm for m in messages for r in revealed(m)} - {None}
    assert bool(seen) == bool(bounded) or scheme.local.per_example is not None
    assert not seen or max(seen) > 0.5


def seen_by(observer: str, messages: Sequence[Message], case: Case) -> list[Release]:
    """A peer of an anonymous scheme sees all uploads at most."""
    down = observer == "downlink" and not case.preset.startswith("anonymous")
    return [
        r
        for m in messages
        if (m.sender_party == SERVER if down else m.sender_party not in m.receiver_parties)
        for r in revealed(m)
    ]


@pytest.mark.few(3)
@ALL
@pytest.mark.parametrize("observer", ["server", "downlink"])
def test_it_is_priced_or_refused_with_a_reason(case, observer, trained):
    messages = trained(str(case)).messages
    price = worst(seen_by(observer, messages, case), range(CLIENTS), unit="client", adjacency="zero_out", delta=1e-5)
    assert isfinite(price.epsilon) == (observer in case.proven), price.reasons
    if isinf(price.epsilon):
        assert any(reason.startswith("Nothing can be proven: ") for reason in price.reasons)
    else:
        assert price.epsilon > 0


@ALL
def test_a_claim_is_a_number_that_grows_with_the_releases(case):
    claim = scheme_of(case).claim
    if claim is None:
        assert case.preset == "fedavg"
        return
    if claim.epsilon is None:  # what is proven, whatever that is
        assert claim.whose == "accountant"
        return
    values = [claim.epsilon(k, 1e-5) for k in (1, 2)]
    assert 0 < values[0] <= values[1] < float("inf")
    assert claim.epsilon(1, 1e-3) <= values[0]
    assert claim.sentence and "\n" not in claim.sentence


@pytest.mark.parametrize("name", PRESETS)
def test_it_says_in_one_line_each_what_it_is(name):
    preset = PRESETS[name]
    assert preset.name == name
    for words in (preset.title, preset.source, preset.needs, preset.claimed_unit, preset.why):
        assert 0 < len(words) <= 160 and "\n" not in words


@pytest.mark.parametrize("name", PRESETS)
def test_what_the_list_calls_provable_is_what_the_accountant_proves(name):
    """no: to nobody, whatever the parameters; yes: to everybody; depends: between.

    `proven` is checked against the accountant above.
    """
    proven = [who in case.proven for case in CASES if case.preset == name for who in ("server", "downlink")]
    assert PRESETS[name].provable == ("yes" if all(proven) else "depends" if any(proven) else "no")


@ALL
def test_the_unit_in_words_is_the_claims(case):
    claim, words = scheme_of(case).claim, PRESETS[case.preset].claimed_unit
    assert words == "none" if claim is None else f"{claim.unit} ({claim.adjacency})" in words or "LDP-only" in words


@pytest.mark.parametrize("name", PRESETS)
def test_its_docstring_holds_a_number_to_check(name):
    build = getattr(PRESETS[name].build, "func", PRESETS[name].build)
    (checked,) = doctest.DocTestFinder(recurse=False).find(build, globs={})
    assert any(example.want for example in checked.examples)
    assert "claim" in build.__doc__.lower()


@pytest.mark.parametrize(("name", "share"), [(n, s) for n, p in PRESETS.items() for s in KINDS if s not in p.shares])
def test_a_share_that_does_not_fit_is_refused_by_the_schemes_own_name(name, share):
    with pytest.raises(ValueError, match=rf"share = '{share}' does not fit '{name}': use") as error:
        scheme_of(Case(name, {**example(name), "share": share}))
    assert "\n" not in str(error.value)


SHIPPED = [
    path
    for part in ("README.md", "attacks", "audit", "cli.py", "defenses", "docs", "examples")
    for path in ([ROOT / part] if (ROOT / part).is_file() else sorted((ROOT / part).rglob("*.*")))
    if path.suffix in (".py", ".toml", ".md", ".json", ".j2") and path != ROOT / "audit/setup/config.py"
]


def test_nothing_shipped_names_a_scheme_by_an_old_name():
    """Only the table of old names does."""
    texts = {path: path.read_text(encoding="utf-8") for path in SHIPPED}
    assert len(texts) > 150
    assert not [(path.name, old) for path, text in texts.items() for old in OLD_NAMES if old in text]


def test_every_scheme_that_a_preset_names_exists():
    """In what users read (title, needs, claim, reason) and in docstrings, where names stand between backticks."""
    code = {"noise_multiplier", "steps", "audit list", "audit init", "build", "provable"}
    for name, preset in PRESETS.items():
        build = getattr(preset.build, "func", preset.build)
        words = " ".join((preset.title, preset.needs, preset.claimed_unit, preset.why, build.__doc__))
        assert set(re.findall(r"`([^`]+)`", words)) - code <= set(PRESETS), name
        assert all(other in PRESETS for other in re.findall(r"\bas (ldp|cdp|\w+-\w+)\b", words)), name


@pytest.mark.parametrize(("old", "name"), OLD_NAMES.items())
def test_an_old_name_is_read_wherever_one_is_typed(old, name):
    config = parse_config({"scheme": {"name": old}})
    assert config.preset_name == name and config.parameters() == PRESETS[name].parameters()
    assert config.model_dump(mode="json")["scheme"] == {"name": old}  # what a setup's digest covers stays as typed
    assert config_template(old) == config_template(name)
    assert tomllib.loads(config_template(old))["scheme"]["name"] == name


@pytest.mark.parametrize("name", PRESETS)
def test_the_config_that_init_writes_builds_the_scheme(name):
    config = parse_config(tomllib.loads(config_template(name)))
    population = Population((100,) * 10, Layout.of(net()))
    scheme = PRESETS[name].scheme(config.parameters(), SGD, population)
    assert scheme.name == name


@pytest.mark.parametrize("name", PRESETS)
def test_the_config_that_init_writes_says_what_every_quantity_is(name):
    """Its formula and unit stand beside it; what decides the noise says which noise_std it gives, or that it is one."""
    text, preset = config_template(name), PRESETS[name]
    said = re.sub(r"\s*\n# ", " ", text)  # where it is long it stands above, in several lines
    for key, parameter in preset.parameters.model_fields.items():
        assert parameter.description and (parameter.description in said or key == "target_epsilon"), key
    for key in preset.noise:
        words = preset.parameters.model_fields[key].description
        assert "noise_std" in words or "parameter units" in words
    assert ("target_epsilon" in text) == bool(preset.noise)
    assert max(map(len, text.splitlines())) <= 120


def test_a_client_without_state_of_its_own_is_not_needed_by_components():
    """The planned ledger runs without training: steps must do with what an optimiser has before its first step."""
    local = LocalTraining(optimiser="adam", lr=0.1)
    assert torch.equal(components.repeated_step(torch.zeros(3), {}, local, 0.1), torch.zeros(3))


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("cdp", {"clip": -1.0}, "clip"),
        ("cdp", {"sigmas": 1.0}, "did you mean 'sigma'"),
        ("lcdp", {"top": 1.5}, "top"),
        ("fednore1", {}, "exactly one of sigma and noise_std"),
        ("nbafl", {"delta": 2.0}, "delta"),
        ("geometric", {"ratio": 0.0}, "ratio"),
        ("component", {"K": 1}, "K"),
        ("component", {"stop": "never"}, "stop"),
        ("iteration-laplace", {"order": 3}, "order"),
        ("dpsgd", {"sigma": 0.0}, "sigma"),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_sentence(name, parameters, words):
    with pytest.raises(BadInput) as error:
        parse_config({"scheme": {"name": name, **parameters}})
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("ldp", {"sigma": 1.0, "participants": 7}, "only 6 clients"),
        ("cdp", {"share": "weights"}, "share"),
        ("lcdp", {"ldp_epsilon": 1e-3}, "ldp_epsilon = 0.001"),
        ("fednore2", {"sigma": 8.0, "lam": 3.0}, "λσ"),
        ("nbafl", {"exposures": 99}, "exposures = 99"),
        ("nbafl", {"share": "gradient"}, "share"),
        ("iteration-laplace", {"b": 7}, "only 6 clients"),
        ("dpsgd", {"share": "gradient"}, "share"),
        ("fedavg", {"budget": 1.0}, "budget"),
        ("local-gaussian", {"budget": 1.0}, "no formula"),
        ("central-gaussian", {"participants": 3, "dropout": 0.1}, "lower participants"),
        ("adaptive-clip", {"participants": 3, "dropout": 0.1, "sampling": "poisson"}, "lower participants"),
        ("adaptive-clip", {"noise_multiplier": 1.0, "count_std": 0.5}, "raise count_std above 0.5"),
        ("dp-ftrl", {"participants": 7}, "only 6 clients"),
        ("dp-ftrl", {"participants": 3, "separation": 3}, "2 can take turns in a round"),
        ("band-mf", {"participants": 3, "bands": 3, "rounds": 9}, "at most the separation, 2"),
    ],
)
def test_parameters_that_do_not_fit_the_federation_are_refused_in_one_sentence(name, parameters, words):
    with pytest.raises(ValueError) as error:
        scheme_of(Case(name, parameters))
    assert words in str(error.value) and "\n" not in str(error.value)
