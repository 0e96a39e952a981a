"""Targets of one network solved together, by all methods in their phases: read, search, refine, simulate."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn
from torch.backends import cudnn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...defenses.layout import Layout
from ...defenses.progress import Progress, part_of
from .labels.infer import Inferred, infer_together
from .match.case import Auxiliary, Case, ImageShape
from .match.joint import weighed
from .match.solution import Solution
from .plan import PLAN, cost_of
from .read.mode import as_run
from .read.statistics import as_broadcast
from .read.target import Target
from .settings import Settings
from .strategies.simulating import first_reading
from .strategies.strategy import PHASES, Found, Phase, StrategyWork


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Convolutions in whole float32, as the CPU has them, and attention by products, as long as the context lasts. What
    a caller chose besides stands, so also products of matrices by TensorFloat-32, which torch has off.

    cuDNN by default reads ten bits of a convolution's numbers alone (TensorFloat-32). A gradient's direction under weak
    noise, and everything that is called exact here, is told by the bits beyond. And the fast kernels of attention have
    no second derivative.
    """
    chosen = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic)
    with cudnn.flags(*chosen, allow_tf32=False), sdpa_kernel(SDPBackend.MATH):
        yield


def solve(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: ImageShape,
    settings: Settings,
    seed: int,
    progress: Progress | None = None,
    auxiliary: Sequence[Auxiliary] = (),
) -> list[Solution]:
    """A solution for every target, in order.

    Args:
        module: the network of all targets, left as it is.
        targets: they may come from several views (noise cells, clip cells).
        input_shape: (channels, height, width) of an image.
        settings: `manners` has no effect here. seed: of the starts. progress: called as `progress(done, total)`.
        auxiliary: of each target, () for none; what it holds is left where it is. With `settings.learned` each has a
            filter, and its messages have noise of known size.

    Raises:
        ValueError: inputs are no images, a target does not fit the network, or labels cannot be inferred.
    """
    found = solve_cases(cases_of(module, targets, input_shape, settings, seed, auxiliary), progress)
    return [each.best for each in found]


def cases_of(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: ImageShape,
    settings: Settings,
    seed: int,
    auxiliary: Sequence[Auxiliary] = (),
) -> list[Case]:
    """The targets as cases with their labels.

    Args:
        module, targets, input_shape, settings, seed, auxiliary: as of `solve`, which raises the same ValueErrors.
    """
    if len(input_shape) != 3:
        raise ValueError(
            "gradient inversion reconstructs images (channels, height, width); the setup's inputs have shape"
            f" {tuple(input_shape)}"
        )
    layout = Layout.of(module)
    for target in targets:
        if len(target.gradient) != layout.dim:
            raise ValueError(
                f"target {target.key!r} has {len(target.gradient)} numbers, the network has {layout.dim} parameters"
            )
    device, known = settings.device, auxiliary or [Auxiliary()] * len(targets)
    given = [of if of.wiener is None else replace(of, wiener=of.wiener.to(device)) for of in known]
    untold = torch.zeros(0, dtype=torch.long)
    cases = [
        labelled(Case(home, layout, target, untold, tuple(input_shape), settings, seed, of))
        for home, target, of in zip(_networks(module, targets, settings), targets, given)
    ]
    there = {id(case.network): case.network for case in cases}
    if settings.device != "cpu":
        there = {key: home.to(settings.device) for key, home in there.items()}
    return [replace(case, network=there[id(case.network)]) for case in cases]


@exact_kernels()
def solve_cases(cases: Sequence[Case], progress: Progress | None = None) -> list[Found]:
    """What all methods find of each case.

    Those at equal weights and of equal count form one batch, with all restarts. Calls
    `torch.set_flush_denormal(True)`: near convergence output errors become denormal numbers, which alone slow the loop
    manyfold.
    """
    torch.set_flush_denormal(True)
    begun = [first_reading(case) for case in cases]
    costs = [sum(cost_of(strategy, case) for case in cases) for strategy in PLAN]
    watch = _Rising(progress, costs)
    found = [Found() for _ in cases]
    for phase in PHASES[:-1]:
        found = _through(phase, begun, found, watch)
    found = [each.settled(case.labels_by) for case, each in zip(begun, found)]
    found = _through(PHASES[-1], cases, found, watch)
    watch.end()
    return found


def _through(phase: Phase, cases: Sequence[Case], found: Sequence[Found], watch: _Rising) -> list[Found]:
    """What is known of each case after a phase."""
    found = list(found)
    for place, strategy in enumerate(PLAN):
        if strategy.phase != phase:
            continue
        why = [strategy.applies(case) or strategy.needless(case, each) for case, each in zip(cases, found)]
        found = [replace(each, methods={**each.methods, strategy.name: no}) for each, no in zip(found, why)]
        open_ = [i for i, no in enumerate(why) if not no]
        if open_:
            work = StrategyWork(watch.part(place), _again)
            made = strategy.solve([cases[i] for i in open_], [found[i] for i in open_], work)
            found = [dict(zip(open_, made)).get(i, each) for i, each in enumerate(found)]
    return found


def _again(cases: Sequence[Case], progress: Progress | None) -> list[Found]:
    """What all methods find of cases that one of them made."""
    if cases[0].settings.device == "cpu":
        return solve_cases([labelled(case) for case in cases], progress)
    home = [labelled(replace(case, network=copy.deepcopy(case.network).cpu())) for case in cases]
    return solve_cases([replace(of, network=case.network) for of, case in zip(home, cases)], progress)


def labelled(case: Case) -> Case:
    """The case with its labels, known or inferred, and how much each of its messages counts. Its network is where its
    target is, on the CPU.

    Raises:
        ValueError: they are not known, or cannot be inferred.
    """
    inferred = _labels(case)
    labels, objective = inferred.labels, case.settings.objective
    target = weighed(case.network, case.layout, case.target, labels, case.shape, objective)
    return replace(case, target=target, labels=labels, labels_by=inferred.said)


def _labels(case: Case) -> Inferred:
    if case.settings.labels == "inferred":
        return infer_together(case.network, case.layout, case.target.messages, case.shape)
    if case.target.labels is None:
        raise ValueError(f"the labels of {case.target.key!r} are not known to the attacker; use labels = 'inferred'")
    return Inferred(case.target.labels, "", "")


def _networks(module: nn.Module, targets: Sequence[Target], settings: Settings) -> list[nn.Module]:
    """The network of each target as clients ran it: one of all, but where each was sent with running statistics of its
    own, which it ran by.
    """
    if settings.mode == "eval" and any(target.statistics for target in targets):
        each = [as_broadcast(module, target.statistics) for target in targets]
        return [as_run(network, settings.mode) for network in each]
    return [as_run(module, settings.mode)] * len(targets)


class _Rising:
    """Progress of methods one after the other by what each costs, told as it rises, and in the end. It may be left out
    in parts, and so jump.
    """

    def __init__(self, progress: Progress | None, costs: Sequence[int]) -> None:
        self.progress, self.costs, self.share = progress, costs, -1.0

    def part(self, place: int) -> Progress | None:
        """Of one method, by its place."""
        total = max(1, sum(self.costs))
        begin = sum(self.costs[:place]) / total
        return part_of(self._tell, begin, begin + self.costs[place] / total)

    def end(self) -> None:
        if self.progress is not None:
            self.progress(1000, 1000)

    def _tell(self, done: int, total: int, /, words: str = "") -> None:
        if self.progress is not None and self.share < done / total < 1:
            self.share = done / total
            self.progress(done, total)
