"""The config of a study, with a point of its space put in: what is priced, what is trained, and what decides both."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy.stats import poisson
from torch import Tensor, nn

from ...defenses.data.dataset import Dataset
from ...defenses.participation import Everyone
from ...defenses.randomness import Keystream, secret_seed
from ...defenses.schedule import rounds_planned
from ..errors import BadInput
from ..options.choices import DeviceName, Rows, Search
from ..proof.certificate import ProofQuestion
from ..proven import target
from ..proven.rows import check_observers
from ..proven.rows import row as priced_row
from ..proven.views import Views
from ..results.format import Epsilon
from ..setup.config import Config, parse_config
from ..setup.description import versions, with_key
from ..setup.experiment import Experiment, with_scheme
from ..setup.key import PUBLISHED
from ..setup.planned import planned_ledger
from .goals import Goals
from .space import Setting, Space, overrides

OWN_RECORDS = (
    "the search trains on the clients' own records, and all its trainings cost them ε; on auxiliary ones it would cost"
    " them nothing, but {}"
)
FEWER = "{}; the study continues with that"
# Of the minutes one part is for the attacks of the search and one for those on a setting that is attacked again; the
# others are for training, scoring and prices, and for a second setting where the first one fails.
PARTS = 4
LONGER = 3  # times as long as in the search a training is attacked again, at least
MOST_DRAWS = 100  # of a seed and key, for an audited client to take part


@dataclass(frozen=True, eq=False)
class StudyCase:
    """A study, asked for and checked.

    raw: the config's tables, to put a point into. source: the text that they are of, and overrides what was set in it;
    "" for none. base: where its relative paths start. rows: which records are trained on; auxiliary ones are no
    client's, so what a search learns of them costs the clients nothing. trials: how many points are looked at.
    seeds: how often a recommended one is trained again. minutes: for the whole study (`PARTS`). baseline: also train it
    without clip and noise, to compare accuracy with.
    no_auxiliary: why auxiliary records are not used, where nobody asked for the clients' own. fewer: why clients have
    fewer records than the config asks for; "" where they have not. cut_off: what of the ranges is not looked at, and
    why. target: that the config's target_epsilon is left out; "" where it is not.
    key: of the study; every training of it has one of its own. device: where inversions compute, "cpu" or "cuda".
    first: a point that is a setting.
    """

    raw: Mapping[str, Any]
    base: Path
    space: Space
    goals: Goals
    rows: Rows
    trials: int
    search: Search
    seeds: int
    minutes: float
    baseline: bool
    key: str
    allow_model: str | None = None
    device: DeviceName = "cpu"
    source: str = ""
    overrides: tuple[str, ...] = ()
    no_auxiliary: str = ""
    fewer: str = ""
    cut_off: tuple[str, ...] = ()
    target: str = ""
    first: Setting = field(default_factory=dict)
    parts: dict[str, Parts] = field(default_factory=dict)

    @property
    def screen_minutes(self) -> float:
        """For the attacks on one setting of the search, counted from shapes; a minute at most."""
        return min(1.0, self.again_minutes / max(self.trials, LONGER * self.seeds))

    @property
    def again_minutes(self) -> float:
        """For the attacks on all seeds of one setting that is attacked again, counted from shapes."""
        return self.minutes / PARTS

    @property
    def remarks(self) -> list[str]:
        """What a study does otherwise than it may seem, a sentence each."""
        fewer = [FEWER.format(self.fewer)] if self.fewer else []
        target = [self.target] if self.target else []
        return [*target, *fewer, *self.cut_off] + ([OWN_RECORDS.format(self.no_auxiliary)] if self.no_auxiliary else [])

    @property
    def no_selection(self) -> str:
        """Why the search is not a private selection, of which nothing but the best setting is shown; "" if it is."""
        if self.search != "random":
            return "the search goes by what it measured; --search random does not"
        if self.config.audit.observer.name != "model":
            return f"{self.config.audit.observer.words} sees every training's messages, not the winner's model alone"
        if self.goals.of_attacks:
            return "a limit on attacks takes the truth to know; ask for accuracy and ε alone"
        if self.goals.best != "accuracy":
            return "--best privacy goes by attacks"
        if not math.isfinite(self.space.size):
            return "a range holds settings without end, of which the worst is not known; give values"
        return ""

    @property
    def selects(self) -> bool:
        """Whether the trials are a private selection among the clients' own records (`price.selection_price`)."""
        return self.rows == "training" and not self.no_selection

    @cached_property
    def count(self) -> int:
        """How many points are looked at. Of a private selection the number is a draw of the study's key, Poisson with
        mean `trials`.
        """
        if not self.selects:
            return int(min(self.trials, self.space.size))
        flip = float(Keystream(secret_seed(self.config.seed, self.key), "how many trials").uniform(1))
        return int(poisson.ppf(flip, self.trials))

    @cached_property
    def config(self) -> Config:
        """Without a point; or with the first that makes it one, as what varies may be all that it lacks."""
        try:
            return parse_config(self.raw)
        except BadInput as why:
            for point in self.space.grid(2):
                with suppress(BadInput):
                    return self.config_of(point)
            raise why

    @property
    def classifies(self) -> bool:
        """Whether there is an accuracy."""
        return all(parts.data.classes > 0 and not parts.data.target_shape for parts in self.parts.values())

    @property
    def classes(self) -> int:
        """How many; 0 where targets are no classes."""
        return max(parts.data.classes for parts in self.parts.values())

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides the study, but for its key."""
        content = {
            "config": self.config.model_dump(mode="json"),
            "space": [vars(varied) for varied in self.space.varied],
            "goals": vars(self.goals),
            "rows": self.rows,
            "trials": self.trials,
            "search": self.search,
            "seeds": self.seeds,
            "minutes": self.minutes,
            "baseline": self.baseline,
            "versions": versions(),
            **({} if self.device == "cpu" else {"device": self.device}),  # a GPU rounds otherwise
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def config_of(self, point: Setting, more: Sequence[str] = ()) -> Config:
        """Raises BadInput where the point is none of the scheme's."""
        return parse_config(self.raw, "config", [*overrides(point), *more])

    def to_price(self, point: Setting) -> Experiment:
        """The owner's own training. Raises BadInput."""
        return self._built(self.config_of(point))

    def to_train(self, point: Setting, seed: int, more: Sequence[str] = ()) -> Experiment:
        """The training that is attacked in its place, on the study's rows.

        Args:
            point: of the space. seed: in place of the config's. more: settings beside the point's.

        Raises:
            BadInput: the point is none of the scheme's.
        """
        config = self.config_of(point, [f"seed={seed}", *more])
        own = self.config_of(point)
        kept_apart = own.seed if own.data.split_seed is None else own.data.split_seed  # who is auxiliary stays so
        data = config.data.model_copy(update={"train_on": self.rows, "split_seed": kept_apart})
        return self._built(config.model_copy(update={"data": data}))

    def without_noise(self, point: Setting, seed: int) -> Experiment | None:
        """The same training without clip and noise, to compare accuracy with; None where there is no such one."""
        config = self.to_train(point, seed).config
        scheme = {name: config.scheme[name] for name in ("rounds", "share") if name in config.scheme}
        try:
            capture = config.capture.model_copy(update={"rounds": 1})  # nobody attacks it
            changes: dict[str, Any] = {"scheme": {"name": "fedavg", **scheme}, "claim": None, "capture": capture}
            plain = self._built(config.model_copy(update=changes))
        except BadInput:
            return None
        return plain

    def proven(self, point: Setting) -> float:
        """The ε of [audit]'s row that any key of this setting has; nothing is trained. Raises BadInput."""
        row = self.priced(point)
        if row.proven is None:
            return math.inf
        return float(row.proven)

    def priced(self, point: Setting) -> Epsilon:
        """That row alone, without the curve that bounds single attacks. Raises BadInput."""
        experiment = self.to_price(point)
        asked, ledger = experiment.config.audit, planned_ledger(experiment, any_key=True)
        check_observers(ledger, [asked.observer])
        question = ProofQuestion(asked.observer, asked.unit, asked.adjacency, asked.delta)
        return priced_row(Views(ledger, asked.honest), question, None, curve=False)

    def key_of(self, *name: int | str) -> str:
        """The noise key of one training: as secret as the study's, and another one for each."""
        if self.key == PUBLISHED:
            return PUBLISHED
        return hashlib.sha256(f"dpfl-audit study {self.key} {name}".encode()).hexdigest()

    def search_seed(self, draw: int) -> int:
        """The seed of the search: the config's, and others where that draws no audited client."""
        if draw:
            return self._digested("search", draw)
        return self.config.seed

    def fresh_of(self, number: int) -> Callable[[int], int]:
        """By draw, the seeds of one training of what is attacked again: none that a trial of the search had, and none
        of another number's draws.
        """
        if number >= self.seeds:
            return lambda draw: self._digested("again further", number * MOST_DRAWS + draw)
        return lambda draw: self._digested("again", number + draw * self.seeds)

    def training(
        self, point: Setting, seed_of: Callable[[int], int], name: tuple[int | str, ...], more: Sequence[str] = ()
    ) -> Drawn:
        """One training of a point, with a seed and a key by which an audited client takes part in it.

        On auxiliary records both are drawn until one does: a study is about a client who takes part. Who is in a cohort
        is a secret of the clients' own records, so on these the first draw is taken as it is.

        Args:
            point: of the space. seed_of: the seed of each draw. name: of the training, which its key hangs on.
            more: settings beside the point's.

        Raises:
            BadInput: none of `MOST_DRAWS` has an audited client; or the point is none of the scheme's.
        """
        drawn = Drawn(self.to_train(point, seed_of(0), more), seed_of(0), self.key_of(*name))
        if self.rows != "auxiliary":
            return drawn
        for draw in range(1, MOST_DRAWS):
            if drawn.attended:
                return drawn
            if self.key == PUBLISHED:  # then the seed alone decides
                drawn = Drawn(self.to_train(point, seed_of(draw), more), seed_of(draw), PUBLISHED)
            else:
                drawn = replace(drawn, key=self.key_of(*name, draw))
        raise BadInput(self.nobody(f"of {MOST_DRAWS} trainings"))

    def nobody(self, of: str) -> str:
        """That no audited client takes part in any of these trainings, and what would help."""
        clients = list(self.config.capture.clients)
        return (
            f"[capture] clients = {clients}: none of them takes part in a round that is captured, in any {of}; name"
            " more clients, or have more rounds or larger cohorts"
        )

    def _digested(self, what: str, number: int) -> int:
        digest = hashlib.sha256(f"dpfl-audit {what} {self.config.seed} {number}".encode()).digest()
        return int.from_bytes(digest[:6], "big")

    def _built(self, config: Config) -> Experiment:
        """Trainings of equal data and model share both, so that their clients can be stacked."""
        capture = config.capture
        name = json.dumps(
            [
                config.data.model_dump(mode="json"),
                config.model.model_dump(mode="json"),
                config.seed,
                capture.candidates,
                [int(c) for c in capture.clients],
            ],
            sort_keys=True,
        )
        if name not in self.parts:
            made = target.build(config, self.base, self.allow_model)
            self.parts[name] = Parts(made.data, made.module, made.clients)
            return made
        known = self.parts[name]
        if config.parameters().target_epsilon is None:
            return replace(with_scheme(config, known.data, known.module, known.clients), base=self.base)
        made = target.build(config, self.base, self.allow_model)
        return replace(made, data=known.data, module=known.module, clients=known.clients)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A training with its seed and key."""

    experiment: Experiment
    seed: int
    key: str

    @property
    def attended(self) -> bool:
        """Whether an audited client takes part in a round that is captured; known without training."""
        scheme, capture, clients = self.experiment.scheme, self.experiment.config.capture, self.experiment.clients
        if scheme.participation == Everyone():
            return True
        rounds = rounds_planned(scheme.schedule)
        if capture.rounds != "all":
            rounds = min(rounds, capture.rounds)
        secret = secret_seed(self.seed, with_key(self.experiment, self.key).streams)
        cohorts = (
            scheme.participation.select(t, range(len(clients)), Keystream(secret, "cohort", t)) for t in range(rounds)
        )
        return any(set(cohort.members) & set(map(int, capture.clients)) for cohort in cohorts)


@dataclass(frozen=True, eq=False)
class Parts:
    """What several settings have in common."""

    data: Dataset
    module: nn.Module
    clients: list[Tensor]
