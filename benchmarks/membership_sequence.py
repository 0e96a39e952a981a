"""What all rounds of captured updates tell together, beside every test of a single round, under noise of known size.

    python benchmarks/membership_sequence.py --data-root DIR

Ten clients with 50 Fashion-MNIST records each train an MLP 784-32-10 for 20 rounds, one full step a round (SGD, .1);
every upload is clipped to 1 and noised. Asked are all 500 records and 2,000 others; a member is judged by its own
client's uploads, every other record by one client's, dealt by lot. Single-round tests get the round in which they are
best, by the truth: no attacker could do better with them. The ceiling is what the proof allows anyone who sees all
uploads. Printed as markdown; exit code 1 unless the sequence's lower limit exceeds the others' upper limits somewhere
and its share exceeds theirs everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.base import Attack, Knowledge, MembershipScores, View
from dpfl_audit.attacks.membership import CapturedMembership, SequenceMembership, ShadowFactory
from dpfl_audit.audit.results.membership import score_membership
from dpfl_audit.audit.scoring.limits import Limits
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import client_address
from torch import Tensor

CLIENTS, RECORDS, CANDIDATES, ROUNDS = 10, 50, 2500, 20
NOISES = (0.001, 0.003, 0.01)  # std of the noise on an upload, for a clip of 1
FPR = 0.001
SINGLE = ("cosine", "gradient-difference", "fedmia", "local-loss")


@dataclass(frozen=True)
class Found:
    """A test's TPR at .1 % FPR with its interval, and its AUC."""

    tpr: float
    low: float
    high: float
    auc: float

    def __str__(self) -> str:
        return f"{100 * self.tpr:.1f} ({100 * self.low:.1f}–{100 * self.high:.1f}) | {self.auc:.3f}"


@dataclass(frozen=True, eq=False)
class Federation:
    """A trained federation as the server sees it; owner (n,): whose record a candidate is, −1 for nobody's. asked (n,):
    the client that it is judged by.
    """

    view: View
    knowledge: Knowledge
    owner: Tensor
    asked: Tensor
    clients: dict[str, int]
    ceiling: float

    @classmethod
    def trained(cls, settings: Mapping[str, Any]) -> Federation:
        """Of a config whose clients are all captured, and whose server attacks."""
        config = parse_config(settings)
        clients, seed = config.data.clients, config.seed
        with TemporaryDirectory() as folder:
            setup = open_setup(train(build(config, Path.cwd()), Path(folder) / "setup"))
            auditor = Auditor(setup)
            assert auditor.truth is not None and auditor.ledger is not None
            owner = auditor.truth.candidate_owners
            assert owner is not None
            factory = ShadowFactory(setup.scheme, setup.module(None), tuple(setup.manifest.clients))
            view = setup.view(Observer.parse("server"))
            knowledge = replace(setup.knowledge(), shadow_factory=factory)
            view = replace(view, messages=tuple(replace(m, load=_held(m.load())) for m in view.messages))
            names = {client_address(c): c for c in range(clients)}
            ceiling = Limits(auditor.ledger, 0.0).member(Observer.parse("server"), 2, int((owner < 0).sum()))
        dealt = torch.randint(clients, (len(owner),), generator=torch.Generator().manual_seed(seed))
        return cls(view, knowledge, owner, torch.where(owner >= 0, owner, dealt), names, ceiling)

    def judged(self, scores: dict[str, Tensor]) -> Tensor:
        """(n,): of scores (n,) by sender, for each candidate those of the sender it is judged by."""
        own = torch.stack([scores[sender] for sender in sorted(scores, key=self.clients.__getitem__)])
        return own[self.asked, torch.arange(len(self.asked))]

    def found(self, scores: dict[str, Tensor]) -> Found:
        """Of scores (n,) by sender."""
        picked = self.judged(scores)
        ids = torch.arange(len(picked))
        entry = score_membership(
            MembershipScores("pooled", "server", "", "", ids, picked, ()), self.owner >= 0, None, 0
        )
        point = next(p for p in entry.tpr_points if p.fpr == FPR)
        assert point.interval is not None
        return Found(point.tpr, *point.interval, entry.value("auc") or 0.0)

    def scores(self, attack: Attack, view: View | None = None) -> dict[str, Tensor]:
        """By sender. view: what is seen, None for all."""
        view = view or self.view
        made = [attack.run_part(part, view, self.knowledge, 0) for part in attack.parts(view, self.knowledge)]
        return {each.sender: each.scores for each in made if isinstance(each, MembershipScores)}

    def sequence(self) -> Found:
        return self.found(self.scores(SequenceMembership()))

    def single(self, statistic: str) -> Found:
        """The best round's, by the truth."""
        attack = CapturedMembership(statistic)  # type: ignore[arg-type]
        found = []
        for number in {m.round for m in self.view.messages if not m.broadcast}:
            held = tuple(m for m in self.view.messages if m.round == number)
            found.append(self.found(self.scores(attack, replace(self.view, messages=held))))
        return max(found, key=lambda one: one.tpr)

    def averaged(self) -> Found:
        return self.found(self.scores(CapturedMembership("cosine")))


def _settings(root: Path, noise: float, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "data": {"name": "fashion_mnist", "root": str(root), "clients": CLIENTS, "samples_per_client": RECORDS},
        "model": {"name": "mlp", "options": {"widths": [32]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": RECORDS, "epochs": 1},
        "scheme": {"name": "ldp", "rounds": ROUNDS, "clip": 1.0, "noise_std": noise},
        "capture": {"clients": list(range(CLIENTS)), "candidates": CANDIDATES, "auxiliary": 0},
        "audit": {"delta": 1e-5, "unit": "record", "observer": "server"},
        "claim": "none",
    }


def _held(value: Tensor) -> Callable[[], Tensor]:
    return lambda: value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder that holds FashionMNIST/")
    parser.add_argument("--noise", type=float, nargs="+", default=list(NOISES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| noise_std | test | TPR % at .1 % FPR | AUC | ceiling % |\n|---:|---|---:|---:|---:|")
    above, clear = True, False
    for noise in options.noise:
        federation = Federation.trained(_settings(options.data_root.resolve(), noise, options.seed))
        whole = federation.sequence()
        print(f"| {noise:g} | **all rounds: sequence** | {whole} | {100 * federation.ceiling:.1f} |", flush=True)
        print(f"| {noise:g} | all rounds: average cosine | {federation.averaged()} | {100 * federation.ceiling:.1f} |")
        for statistic in SINGLE:
            single = federation.single(statistic)
            print(f"| {noise:g} | best round: {statistic} | {single} | {100 * federation.ceiling:.1f} |", flush=True)
            above, clear = above and whole.tpr > single.tpr, clear or whole.low > single.high
    return 0 if above and clear else 1


if __name__ == "__main__":
    sys.exit(main())
