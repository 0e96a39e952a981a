"""The settings of a gradient inversion, and which of them go together: a table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...defenses.complaint import one_of

Name = Literal["cosine", "euclidean", "euclidean-naive", "absolute"]
Optimiser = Literal["signed-adam", "adam", "lbfgs"]
Mode = Literal["train", "eval"]

OBJECTIVES: tuple[Name, ...] = ("cosine", "euclidean", "euclidean-naive", "absolute")
OPTIMISERS: tuple[Optimiser, ...] = ("signed-adam", "adam", "lbfgs")
MODES: tuple[Mode, ...] = ("train", "eval")
MANNERS = ("one-round", "all-rounds")
AT_MOST = 10**7  # iterations, restarts, weights: more are a slip


@dataclass(frozen=True)
class Settings:
    """What a gradient inversion (Geiping et al. 2020, arXiv:2003.14053) is told to do. Raises ValueError in one
    sentence for values that are out of range or do not go together.

    objective: cosine | euclidean (models the clip) | euclidean-naive | absolute; see `objective.Matching`.
    optimiser: signed-adam | adam | lbfgs; the step size of the first two falls tenfold at 3/8, 5/8 and 7/8 of the
      `iterations`. lbfgs ignores `lr`, computes in float64, and wants tv = 0.
    lr: step size in pixels, of [0, 1]. tv: weight of the total variation, see `prior.total_variation`; or
      "noise-aware", which raises it with the share of the observed value's energy that is noise, as far as the attacker
      knows the noise (`prior.tv_for_noise`).
    restarts: independent starts; the one with the lowest objective is kept, never by looking at the truth.
    consensus: weight of how far a restart is from the mean of all, see `consensus.with_consensus`.
    labels: known (from the setup's knowledge) | inferred (from what was sent of the classifier, `labels.infer`).
    exact: images that the first layer determines are solved for (`first_layer.FirstLayer`), all of them before anything
      is optimised, or the rest out of what optimising finds. Rows of a table are fitted together, too
      (`row_fit.RowFit`).
    along: where the one gradient is read, between the weights before local training (0) and after it (1), as far as an
      update tells them.
    along_rate: Adam's first step size of that place, which is then learned together with the images from `along` on
      (`surrogate.Surrogate`), in shares of the way; 0 holds it. Of single messages,
      and not where kinks are softened.
    span: weight of what a linear layer behind others tells, see `span.InputSpan`.
    batch_statistics: weight of the batch's own statistics, which BatchNorm's running ones, sent beside the parameters
      before and after local training, tell. running_statistics: of the running ones, where nothing tells the batch's;
      see `statistics.py`.
    features: weight of what the classifier tells of every image's features, see `features.SolvedFeatures`; in a smooth
      network L-BFGS goes on from there, see `features.carried_on`.
    softened: of a network with ReLUs that is not just layers one behind the other (residual sums, normalisations,
      maximum pooling) the kinks are softened, and ever less so, in so many times the `iterations`, see
      `softened.annealed`; all restarts go on to the end then. 0, and with lbfgs: as any other network.
    simulated: so many more iterations in which an update's local training is simulated, batches in an order of the
      attack's own, see `simulated.Simulated`; of what they give and what they began with the one is kept whose
      simulated update is nearer to the one sent. Nothing is simulated where a message is of one step or not of whole
      epochs.
    reorder: the simulation has one set of images in a new order at every iteration, instead of one for every epoch in
      an order drawn once; see `simulating.reordered`.
    learned: the auxiliary records' spectrum is the prior, see `learned_prior`, of messages with noise of known size
      alone; it wants the objective euclidean. lr then counts in standard deviations of the prior.
    records: of how many records a message is taken to be whose sender keeps the number to itself, where no labels tell
      it; 0 leaves such messages out.
    mode: how clients ran the network: "train", each BatchNorm by the statistics of its batch, which the candidate's
      images are taken to be; or "eval", by the running ones. Without a BatchNorm both are the same (`mode.as_run`).
    manners: one-round (each message alone) and all-rounds (all of one sender's together, see `rounds.py`).
    messages: how many are attacked each alone, those with the least noise; 0 for all. What is read together is of all
      rounds, whatever this is.
    device: where to compute, "cpu" or "cuda". Random starts are drawn on the CPU.
    """

    objective: Name = "cosine"
    optimiser: Optimiser = "signed-adam"
    iterations: int = 300
    lr: float = 0.1
    tv: float | Literal["noise-aware"] = 0.01
    restarts: int = 1
    consensus: float = 0.0
    labels: Literal["known", "inferred"] = "known"
    exact: bool = False
    along: float = 0.0
    along_rate: float = 0.0
    span: float = 0.0
    batch_statistics: float = 0.0
    running_statistics: float = 0.0
    features: float = 0.0
    softened: int = 0
    simulated: int = 0
    reorder: bool = False
    learned: bool = False
    records: int = 0
    mode: Mode = "train"
    manners: tuple[str, ...] = ("one-round", "all-rounds")
    messages: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for rule in RULES:
            if rule.broken(self):
                raise ValueError(rule.complaint(self))

    @property
    def by_line_search(self) -> bool:
        """Whether L-BFGS descends, one candidate after the other, and not Adam, all candidates at once."""
        return self.optimiser == "lbfgs"


@dataclass(frozen=True)
class SettingRule:
    """What must not be, and the sentence that says so; broken is asked only where all rules before it hold."""

    broken: Callable[[Settings], bool]
    complaint: Callable[[Settings], str]


def _words(name: str, allowed: tuple[str, ...]) -> SettingRule:
    """One of some words."""
    return SettingRule(lambda s: getattr(s, name) not in allowed, lambda s: one_of(name, getattr(s, name), allowed))


def _at_least_0(name: str) -> SettingRule:
    return SettingRule(lambda s: getattr(s, name) < 0, lambda s: f"{name} is {getattr(s, name)}, it must be at least 0")


def _from_0(name: str) -> SettingRule:
    return SettingRule(
        lambda s: not 0 <= getattr(s, name) <= AT_MOST,
        lambda s: f"{name} is {getattr(s, name)}, it must be from 0 to {AT_MOST:,}",
    )


def _first(settings: Settings, names: tuple[str, ...]) -> str:
    """The first of these settings that is on; "" where none is."""
    return next((name for name in names if getattr(settings, name)), "")


def _against_a_place(settings: Settings) -> str:
    """What a learned place does not go with, if it is set."""
    lbfgs = "optimiser = 'lbfgs'" if settings.by_line_search else ""
    return _first(settings, ("learned",)) or lbfgs


NO_PRIOR = (  # do nothing beside a learned prior
    *("span", "batch_statistics", "running_statistics", "features"),
    *("softened", "consensus", "simulated"),
)

RULES: tuple[SettingRule, ...] = (
    _words("objective", OBJECTIVES),
    _words("optimiser", OPTIMISERS),
    _words("labels", ("known", "inferred")),
    _words("mode", MODES),
    SettingRule(
        lambda s: not set(s.manners) <= set(MANNERS),
        lambda s: one_of("manners", next(m for m in s.manners if m not in MANNERS), MANNERS),
    ),
    SettingRule(
        lambda s: len(set(s.manners)) != len(s.manners) or not s.manners,
        lambda s: f"manners is {list(s.manners)}: name at least one, and each once",
    ),
    _at_least_0("records"),
    _at_least_0("messages"),
    SettingRule(
        lambda s: not (1 <= s.iterations <= AT_MOST and 1 <= s.restarts <= AT_MOST),
        lambda s: f"iterations is {s.iterations} and restarts {s.restarts}, both must be from 1 to {AT_MOST:,}",
    ),
    SettingRule(lambda s: not s.lr > 0, lambda s: f"lr is {s.lr}, it must be positive"),
    _from_0("batch_statistics"),
    _from_0("running_statistics"),
    SettingRule(
        lambda s: max(s.softened, s.simulated, s.span, s.features) > AT_MOST,
        lambda s: (
            f"softened is {s.softened}, simulated {s.simulated}, span {s.span} and features {s.features}: each must be"
            f" at most {AT_MOST:,}"
        ),
    ),
    SettingRule(
        lambda s: not (0 <= s.along <= 1 and min(s.span, s.features, s.softened, s.simulated) >= 0),
        lambda s: (
            f"along is {s.along}, span {s.span}, features {s.features}, softened {s.softened} and simulated"
            f" {s.simulated}: along must be between 0 and 1, the others at least 0"
        ),
    ),
    SettingRule(
        lambda s: not s.consensus >= 0 or (s.consensus > 0 and (s.restarts < 2 or s.by_line_search)),
        lambda s: (
            f"consensus is {s.consensus}: it must be at least 0, and is between restarts = 2 or more of optimiser ="
            " 'signed-adam' or 'adam'"
        ),
    ),
    SettingRule(
        lambda s: s.by_line_search and s.simulated > 0,
        lambda s: "simulated: training is simulated with optimiser = 'signed-adam' or 'adam', not 'lbfgs'",
    ),
    SettingRule(
        lambda s: s.learned and (s.objective != "euclidean" or s.by_line_search),
        lambda s: (
            "learned: a learned prior stands beside the likelihood of what was sent, so it needs objective ="
            f" 'euclidean' and not optimiser = 'lbfgs'; they are {s.objective!r} and {s.optimiser!r}"
        ),
    ),
    SettingRule(
        lambda s: s.learned and _first(s, NO_PRIOR) != "",
        lambda s: f"learned: {_first(s, NO_PRIOR)} does nothing beside a learned prior; leave it out",
    ),
    SettingRule(
        lambda s: not 0 <= s.along_rate <= 1,
        lambda s: f"along_rate is {s.along_rate}, it must be between 0 and 1, of the way",
    ),
    SettingRule(
        lambda s: s.along_rate > 0 and _against_a_place(s) != "",
        lambda s: f"along_rate: a place that is learned does not go with {_against_a_place(s)}; leave one of them out",
    ),
    SettingRule(
        lambda s: s.reorder and not s.simulated, lambda s: "reorder: it is of simulated iterations; set simulated too"
    ),
    SettingRule(
        lambda s: s.tv != "noise-aware" and not (isinstance(s.tv, int | float) and s.tv >= 0),
        lambda s: f"tv is {s.tv!r}, it must be a number from 0 on, or 'noise-aware'",
    ),
)
