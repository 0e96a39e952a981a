"""Table III of Yuan et al., "Amplitude-Varying Perturbation for Balancing Privacy and Utility in Federated Learning"
(GEO): the success of a membership attack with 25 shadow models on a federation with and without the geometric
mechanism, over 50 trials.

The paper prints no more than that of its attack, and of its federation section V-A: 100 users, 10 of them a round, 30
rounds of 5 steps, C = 5, δ = .001. It names neither the data set (the MLP of section V-B is trained on MNIST), the
records of a user, the learning rate, the model attacked (section II-B: "user k's model", and "the global model
parameters broadcast") nor the attack (it cites Shokri et al.). Here:

- attacked is the global model after the last round, by the classifiers of Shokri et al. (one a class, logistic
regression on the whole prediction);
- success is the share of right decisions (log-odds of membership above 0) on all the target's training records and as
many others;
- shadows are trained through the same federation, mechanism included, each on a random half of records that are
disjoint from all candidates;
- "no DP" is the same local training, with the clip of the weights, and no noise;
- the noise follows eq. 8 with Δ = 2C/n; Table II's does not: its σ is .003749·√ϑ to all digits printed, where eq. 8
falls with ϑ, whatever n is.

Three settings: "stated" is section V-A with 100 records a client; its global model fits members hardly better than
others, noise or none. "overfitted" trains few records for longer, so that there is something to protect. "random
labels" is the same with labels that cannot be learnt, only remembered: others are then never right, and the attack
comes as close to .993 as this model lets it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from ...attacks.membership import ShadowFactory, signals
from ...attacks.membership.shadows import deal, train_shadows
from ...attacks.membership.shokri import shokri
from ...defenses import models
from ...defenses.claims import geometric_multiplier
from ...defenses.data import load
from ...defenses.data.dataset import Dataset
from ...defenses.layout import Layout
from ...defenses.local import LocalTraining
from ...defenses.presets import PRESETS, Population
from ...defenses.presets.geometric import GeometricParameters
from ...defenses.progress import Progress
from ...defenses.randomness import generator, stream
from ...defenses.scheme import Scheme
from ...defenses.steps.perturb import Perturb
from ...metrics.intervals import Interval, clopper_pearson_interval
from ...metrics.membership import auc
from ..errors import BadInput
from ..say.words import times
from ..setup.description import versions
from .cells import Cells
from .table import Column, FilledTable, Request, Row, span

PUBLISHED: dict[tuple[float | None, float | None], float] = {  # (ϑ, ε) -> success; (None, None) is "no DP"
    (None, None): 0.993,
    (0.95, 5.0): 0.581,
    (1.0, 5.0): 0.582,
    (1.05, 5.0): 0.573,
    (0.95, 10.0): 0.599,
    (1.0, 10.0): 0.587,
    (1.05, 10.0): 0.583,
    (0.95, 20.0): 0.607,
    (1.0, 20.0): 0.602,
    (1.05, 20.0): 0.596,
}
TRIALS, QUICK_TRIALS = 50, 4
SETS = ("mnist", "fashion_mnist", "digits")
FOLDERS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}


@dataclass(frozen=True)
class TableSetting:
    """A federation of the table.

    clients U, of which `participants` K a round; records n of each (at most); steps τ of full-batch descent.
    random_labels: every record's label is drawn at random. quick_records, quick_shadows: with --quick.
    """

    name: str
    clients: int
    participants: int
    records: int
    steps: int
    rounds: int = 30
    lr: float = 0.1
    clip: float = 5.0
    delta: float = 1e-3
    shadows: int = 25
    random_labels: bool = False
    quick_records: int = 50
    quick_shadows: int = 5

    def fitted(self, available: int, quick: bool) -> TableSetting:
        """With as many records a client as there are: target, others and shadows take four times the target's."""
        records = min(self.quick_records if quick else self.records, self.records, available // (4 * self.clients))
        if records < 1:
            raise BadInput(f"{self.name}: {available} records are too few, {4 * self.clients} are needed")
        return replace(self, records=records, shadows=self.quick_shadows if quick else self.shadows)

    @property
    def sentence(self) -> str:
        some = f"{self.participants} of " if self.participants < self.clients else ""
        who = f"{some}{self.clients} clients"
        return (
            f"{self.name}: {who} × {self.records} records, {self.rounds} rounds of {self.steps} steps, {self.shadows}"
            " shadows"
        )


SETTINGS = (
    TableSetting("stated", clients=100, participants=10, records=100, steps=5),
    TableSetting("overfitted", clients=5, participants=5, records=20, steps=20, quick_records=20),
    TableSetting(
        "random labels", clients=5, participants=5, records=20, steps=20, random_labels=True, quick_records=20
    ),
)


@dataclass(frozen=True)
class GeometricTable:
    settings: Sequence[TableSetting] = SETTINGS
    cells: Sequence[tuple[float | None, float | None]] = tuple(PUBLISHED)

    def run(self, request: Request) -> FilledTable:
        data = _data(request)
        inputs, targets = _everything(data)
        settings = [setting.fitted(len(inputs), request.quick) for setting in self.settings]
        trials = request.trials or request.sized(QUICK_TRIALS, TRIALS)
        content = [
            "geometric-table3 with rates",
            [asdict(s) for s in settings],
            data.description["sha256"],
            data.mean,
            data.std,
            request.seed,
            versions(),
        ]
        store = Cells(request.output, content)
        work = [(s, cell) for s in settings for cell in self.cells]
        asked = {
            f"{setting.name}-{_label(*cell)}-trial-{trial:03d}": (setting, cell)
            for trial in range(trials)
            for setting, cell in work
        }
        ends = list(accumulate(((s.shadows + 1) * s.rounds for s, _ in asked.values()), initial=0))

        def watch(n: int) -> Progress:
            def tick(step: int, _: int, /, words: str = "") -> None:
                if request.progress is not None:
                    request.progress(ends[n] + step, ends[-1], "training federations")

            return tick

        figures: dict[tuple[str, float | None, float | None], list[dict[str, Any]]] = {}
        cells = store.all(
            partial(_cell, data, inputs, targets, asked, request.seed), list(asked), request.workers, watch
        )
        for n, ((setting, cell), made) in enumerate(zip(asked.values(), cells)):
            figures.setdefault((setting.name, *cell), []).append(made)
            watch(n + 1)(0, 0)
        rows = [_row(s, ratio, epsilon, figures[s.name, ratio, epsilon]) for s, (ratio, epsilon) in work]
        sentence = (
            f"{data.name}, MLP of one hidden layer of 32 linear units, {times(trials, 'trial')};"
            f" {'; '.join(s.sentence for s in settings)}."
        )
        return FilledTable(sentence, rows, _columns(request.quick), NOTES)


NOTES = (
    (
        "The paper names neither the data set, the records of a user, the learning rate, the model attacked nor the"
        " attack. Here: the global model after the last round, attacked as by Shokri et al. (a logistic regression a"
        " class); success is the share of right decisions at log-odds 0, half of the candidates being members."
    ),
    (
        '"stated" has the clients, rounds, steps, C and δ of section V-A, and a linear network after 150 steps has'
        ' memorised little: compare its accuracy on members and others. "overfitted" trains few records for longer.'
    ),
    (
        "The published .993 without DP: an attacker cannot tell a member from another record that the model gets right"
        ' just as surely, so with labels that can be learnt success stays far below it. "random labels", which can only'
        ' be remembered, comes near. So does, in "overfitted", the share of members taken for members, if others'
        " wrongly taken for members are not counted; the paper does not say which records its rate is over."
    ),
    (
        "The published .573 to .607 with the mechanism: eq. 8's noise at these n is so strong that the attack is not"
        " told from chance; Table II's is so weak that it changes nothing (benchmarks/geometric_noise.py)."
    ),
    (
        "Shadows are trained through the same mechanism, on records disjoint from the candidates. Without DP the"
        " weights are still clipped to C."
    ),
    (
        "noise_std is that of the first round by eq. 8 with Δ = 2C/n, n the records a client. The paper's Table II (ε ="
        " 10) is .003749·√ϑ to all its digits; eq. 8 falls with ϑ, so no n gives it."
    ),
    (
        "Intervals (95 %): the wider of Student's t over the trials and Clopper-Pearson over all decisions. Control:"
        " the same decisions against membership shuffled."
    ),
)


# --- one cell ---

_Asked = Mapping[str, tuple[TableSetting, tuple[float | None, float | None]]]


def _cell(
    data: Dataset, inputs: Tensor, targets: Tensor, asked: _Asked, seed: int, key: str, tick: Progress | None
) -> dict[str, Any]:
    """Records, weights, noise: cells share nothing, so none repeats the luck of another."""
    setting, (ratio, epsilon) = asked[key]
    return attack(data, inputs, targets, setting, ratio, epsilon, stream(seed, key), tick)


def attack(
    data: Dataset,
    inputs: Tensor,
    targets: Tensor,
    setting: TableSetting,
    ratio: float | None,
    epsilon: float | None,
    seed: int,
    tick: Progress | None = None,
    noise_std: float | None = None,
) -> dict[str, Any]:
    """One trial of one cell: a target federation and its shadows, trained together, and what the attack got right.

    Args:
        data: for its shape and classes.
        inputs, targets: all records.
        setting: the federation.
        ratio: ϑ; None together with `epsilon`: no noise.
        epsilon: the claimed ε.
        seed: of records, weights, noise and shuffles.
        tick: called with the rounds done and their number.
        noise_std: this noise instead of eq. 8's.
    """
    size = setting.clients * setting.records
    rows = torch.randperm(len(inputs), generator=generator(seed, "records"))[: 4 * size]
    x, y = inputs[rows], targets[rows]  # the target's, as many others, and twice as many of the attacker's
    if setting.random_labels:
        y = torch.randint(data.classes, (len(y),), generator=generator(seed, "labels"))
    module = models.build(
        "mlp",
        input_shape=data.input_shape,
        classes=data.classes,
        mean=data.mean,
        std=data.std,
        seed=stream(seed, "model"),
        widths=[32],
        activation="linear",
    )
    candidates, own = torch.arange(2 * size), torch.arange(2 * size, 4 * size)
    taken = [
        own[torch.randperm(len(own), generator=generator(seed, "shadow", s))[:size]] for s in range(setting.shadows)
    ]
    sizes = (setting.records,) * setting.clients
    clients = [deal(r, sizes, generator(seed, "deal", k)) for k, r in enumerate([candidates[:size], *taken])]
    scheme = scheme_of(setting, ratio, epsilon, Layout.of(module))
    if noise_std is not None:
        scheme = replace(
            scheme,
            client=(*(s for s in scheme.client if not isinstance(s, Perturb)), Perturb(noise_std=noise_std)),
            claim=None,
        )
    make = ShadowFactory(scheme, module, sizes).on(x, y, own[:0], data.classes)
    weights = train_shadows(make, clients, [stream(seed, "federation", k) for k in range(len(clients))], progress=tick)
    asked = signals.of_model(signals.probabilities, module, weights[0], x[candidates], y[candidates])
    theirs = signals.of_models(signals.probabilities, module, weights[1:], x[own], y[own])
    keep = torch.stack([torch.isin(own, r) for r in taken])
    scores = shokri(asked, y[candidates], theirs, y[own], keep)
    member, decided, hit = candidates < size, scores > 0, asked.argmax(1) == y[candidates]
    shuffled = member[torch.randperm(len(member), generator=generator(seed, "shuffled"))]
    noise = next((step for step in scheme.client if isinstance(step, Perturb)), None)
    return {
        "candidates": len(member),
        "hits": int((decided == member).sum()),
        "recognised": float(decided[member].double().mean()),
        "accused": float(decided[~member].double().mean()),
        "hits_shuffled": int((decided == shuffled).sum()),
        "auc": auc(scores[member], scores[~member])[0],
        "accuracy_members": float(hit[member].double().mean()),
        "accuracy_others": float(hit[~member].double().mean()),
        "noise_std": 0.0 if noise is None else _noise_std(noise, setting),
    }


def _noise_std(noise: Perturb, setting: TableSetting) -> float:
    return noise.noise_std or float(noise.noise_multiplier or 0.0) * setting.clip / setting.records


def scheme_of(setting: TableSetting, ratio: float | None, epsilon: float | None, layout: Layout) -> Scheme:
    """The geometric scheme, or (None, None) the same without its noise."""
    parameters = GeometricParameters(
        rounds=setting.rounds,
        delta=setting.delta,
        clip=setting.clip,
        tau=setting.steps,
        participants=setting.participants,
        epsilon=epsilon or 1.0,
        ratio=ratio or 1.0,
    )
    local = LocalTraining(optimiser="sgd", lr=setting.lr, batch_size=setting.records, steps=setting.steps)
    scheme = PRESETS["geometric"].scheme(parameters, local, Population((setting.records,) * setting.clients, layout))
    if epsilon is not None:
        return scheme
    return replace(
        scheme,
        name="geometric without noise",
        client=tuple(s for s in scheme.client if not isinstance(s, Perturb)),
        claim=None,
    )


# --- rows ---


def _row(
    setting: TableSetting, ratio: float | None, epsilon: float | None, trials: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    candidates = sum(t["candidates"] for t in trials)
    row: dict[str, Any] = {
        "setting": setting.name,
        "theta": ratio,
        "epsilon": epsilon,
        "published": PUBLISHED.get((ratio, epsilon)),
        "trials": len(trials),
    }
    for name, hits in (("success", "hits"), ("control", "hits_shuffled")):
        shares = [t[hits] / t["candidates"] for t in trials]
        low, high = interval(shares, sum(t[hits] for t in trials), candidates)
        row |= {name: mean(shares), f"{name}_low": low, f"{name}_high": high}
    multiplier = 0.0
    if ratio is not None and epsilon is not None:
        multiplier = geometric_multiplier(
            epsilon, setting.delta, setting.rounds, ratio, setting.participants / setting.clients
        )
    averages = {
        name: mean(t[name] for t in trials)
        for name in ("auc", "recognised", "accused", "accuracy_members", "accuracy_others")
    }
    return {
        **row,
        **averages,
        "noise_std": trials[0]["noise_std"],
        "noise_multiplier": multiplier,
        "candidates": candidates,
    }


def interval(shares: Sequence[float], hits: int, n: int, confidence: float = 0.95) -> Interval:
    """The wider of two: Student's t over the trials' shares (two trials or more), which knows that models differ, and
    Clopper-Pearson over all decisions, which knows how few they are. Within [0, 1].

    >>> [round(limit, 3) for limit in interval([0.5, 0.6], 110, 200)]      # t with one degree of freedom: ±12.7 · .05
    [0.0, 1.0]
    """
    low, high = clopper_pearson_interval(hits, n, confidence)
    if len(shares) > 1:
        half = float(stdtrit(len(shares) - 1, 0.5 + confidence / 2)) * stdev(shares) / sqrt(len(shares))
        low, high = min(low, mean(shares) - half), max(high, mean(shares) + half)
    return max(0.0, low), min(1.0, high)


def _columns(quick: bool) -> tuple[Column, ...]:
    def cell(name: str, pattern: str = "{:.3f}", without: str = "–") -> Callable[[Row], str]:
        return lambda row: without if row[name] is None else pattern.format(row[name])

    return (
        Column("setting", lambda row: str(row["setting"])),
        Column("ϑ", cell("theta", "{:g}", "no DP")),
        Column("ε", cell("epsilon", "{:g}", "∞")),
        Column("published", cell("published")),
        Column("ours (quick)" if quick else "ours", cell("success")),
        Column("95 %", lambda row: span(row, "success_low", "success_high")),
        Column("control", cell("control")),
        Column("AUC", cell("auc")),
        Column("taken for members: members / others", lambda row: f"{row['recognised']:.3f} / {row['accused']:.3f}"),
        Column(
            "accuracy members / others", lambda row: f"{row['accuracy_members']:.3f} / {row['accuracy_others']:.3f}"
        ),
        Column("noise_std", lambda row: f"{row['noise_std']:.4f}"),
    )


def _label(ratio: float | None, epsilon: float | None) -> str:
    return "no-dp" if ratio is None else f"theta-{ratio:g}-epsilon-{epsilon:g}"


# --- data ---


def _data(request: Request) -> Dataset:
    """The set asked for; else MNIST or Fashion-MNIST, the first that `data_root` holds; without a root, digits."""
    if request.data is not None and request.data not in SETS:
        raise BadInput(f"data = {request.data!r}: the table is made on {', '.join(SETS)}")
    name = request.data or ("digits" if request.data_root is None else _held(request.data_root))
    if name != "digits" and request.data_root is None:
        raise BadInput(f"{name} is read from a folder; give --data-root DIR, with DIR/{FOLDERS[name]}/raw")
    return load(name, root=None if name == "digits" else str(request.data_root), seed=stream(request.seed, "data"))


def _held(root: Path) -> str:
    for name, folder in FOLDERS.items():
        if (root / folder).is_dir():
            return name
    raise BadInput(
        f"--data-root {root} holds neither {' nor '.join(f'{folder}/' for folder in FOLDERS.values())}; give a folder"
        " with one of them, or leave it out for digits"
    )


def _everything(data: Dataset) -> tuple[Tensor, Tensor]:
    """All records, whatever split they were published in.

    Target, others and shadows are drawn from one pool, so that nothing but training distinguishes them.
    """
    return torch.cat([data.inputs, data.test_inputs, data.auxiliary_inputs]), torch.cat(
        [data.targets, data.test_targets, data.auxiliary_targets]
    )
