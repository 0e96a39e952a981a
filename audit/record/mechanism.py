"""What an owner declares of clip and noise, in the terms that a release has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, asdict, dataclass, field
from math import isfinite, sqrt
from typing import Any, ClassVar, Literal, cast

from ...defenses.ranges import LEAST_SIZE, MOST_SIZE
from ...defenses.releases import Sampling
from ...defenses.terms import Unit
from ..errors import BadInput
from ..say.words import times
from ..setup.reading import short
from .matrix import Declarable, correlation_words, plain_of, stds_of, strategy_of

Law = Literal["gaussian", "laplace"]
BY = {"client": "", "server": " by the server"}
WHERE = {"client": "each client's update", "server": "the round's {0.on}, by the server"}
MOST_STEPS = 10_000_000  # of one upload
MOST_RECORDS = 2**53  # or clients: what a float64 still counts


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise, as its owner declares it. Nothing is drawn here.

    clip: C > 0, the L2 norm that bounds what the noise is added to, in parameter units: a client's update (of a client
      that sends weights: their distance from the model it got), or with of="record" each record's gradient.
    noise_std: > 0, its standard deviation in parameter units: by="client" on each client's update, by="server" on the
      round's mean of the clipped updates. With of="record": on the sum of a batch's clipped gradients, so that
      noise_std / clip is DP-SGD's noise multiplier; where batches are drawn by coins, a step divides by their expected
      size (as Opacus does), or its draw is told by what it divides by.
    of: what is clipped, a "client"'s whole update or each "record"'s gradient (local DP-SGD, by="client").
    steps: of="record" alone: how many steps of local training one upload holds.
    sampling: a secret lot: of the clients of a round (by="server"), or of the records of a step (of="record").
    on: by="server" alone: whether the noise is on the round's "mean", or on its "sum", of which the mean is one part in
      as many as there are uploads. A further mechanism's sum is of values that nobody weighs.
    what: its name, where a round has several.
    noise_multiplier: in place of noise_std: that over the sensitivity, which is clip, so noise_std = noise_multiplier *
      clip. Not of the mean by a server: how far one client moves that follows how many there are.
    scale: "public" where clip and noise were fixed before the training, or follow from what was released; "private"
      where they follow from anything else, such as a median of the round's norms, so that nothing is proven.

    Raises BadInput for a number out of its range, a combination that nothing prices, or not exactly one of noise_std
    and noise_multiplier.

    >>> Gaussian(clip=2, noise_multiplier=1.5) == Gaussian(clip=2, noise_std=3.0)
    True
    """

    law: ClassVar[Law] = "gaussian"
    order: ClassVar[int] = 2  # of the norm that is clipped
    clip: float
    noise_std: float = cast(float, None)
    by: Literal["client", "server"] = "client"
    of: Unit = "client"
    steps: int = 1
    sampling: Sampling | None = None
    on: Literal["mean", "sum"] = "mean"
    what: str = ""
    noise_multiplier: InitVar[float | None] = None
    scale: Literal["public", "private"] = field(default="public", kw_only=True)

    def __post_init__(self, noise_multiplier: float | None) -> None:
        if (self.noise_std is None) == (noise_multiplier is None):
            raise BadInput("Gaussian: give either noise_std or noise_multiplier, which is noise_std over clip")
        if noise_multiplier is not None:
            _check_numbers(self, {"clip": self.clip, "noise_multiplier": noise_multiplier})
            if self.by == "server" and self.on == "mean":
                raise BadInput(
                    "Gaussian: noise_multiplier is over the sensitivity, and how far a client moves a server's mean"
                    " follows how many there are; give noise_std = noise_multiplier * clip / clients, or on = 'sum'"
                )
            object.__setattr__(self, "noise_std", float(noise_multiplier) * self.clip)
        _check_numbers(self, {"clip": self.clip, "noise_std": self.noise_std})
        if self.of not in ("client", "record"):
            raise BadInput(f"Gaussian: of = {self.of!r}; what is clipped is of a 'client' or of a 'record'")
        if self.of == "record" and self.by == "server":
            raise BadInput(
                "Gaussian: a server has no records' gradients to clip; of = 'record' goes with by = 'client'"
            )
        _check_place(self)
        if type(self.steps) is not int or not 1 <= self.steps <= (MOST_STEPS if self.of == "record" else 1):
            raise BadInput(
                f"Gaussian: steps = {short(self.steps)}: a whole number from 1 to {MOST_STEPS:,}, above 1 only of ="
                " 'record'"
            )
        if self.sampling is not None:
            self._check_sampling(self.sampling)

    def _check_sampling(self, lot: Sampling) -> None:
        if not isinstance(lot, Sampling) or lot.kind not in ("poisson", "without_replacement"):
            raise BadInput(f"Gaussian: sampling = {lot!r}: expected Sampling('poisson', population, cohort)")
        if lot.unit != self.of:
            raise BadInput(
                f"Gaussian: sampling of {lot.unit}s beside a clip of each {self.of}; give Sampling(…, unit=)"
            )
        _check_lot(self, lot)

    @property
    def words(self) -> str:
        """
        >>> Gaussian(clip=1, noise_std=0.5).words
        "Gaussian noise of standard deviation 0.5 on each client's update"
        """
        on = WHERE[self.by].format(self)
        if self.of == "record":
            on = f"each step's sum of a batch's clipped gradients, {times(self.steps, 'step')} an upload"
        return f"Gaussian noise of standard deviation {self.noise_std:g} on {on}"

    @property
    def clip_words(self) -> str:
        """
        >>> Gaussian(clip=1, noise_std=0.5).clip_words
        "each client's update clipped to L2 norm 1"
        """
        whose = "each client's update"
        if self.of == "record":
            whose = "each record's gradient"
        return f"{whose} clipped{BY[self.by]} to L2 norm {self.clip:g}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @property
    def spread(self) -> float:
        """What a bound is divided by for a release's ratio."""
        return self.noise_std


@dataclass(frozen=True)
class Laplace:
    """Laplace noise, as its owner declares it. Nothing is drawn here.

    clip: C > 0, the L1 norm (the sum of the sizes) that bounds what the noise is added to, in parameter units: an L2
      clip bounds no L1 norm, so Laplace noise proves nothing behind one.
    noise_scale: b > 0, in the same units; its standard deviation is √2 b. On each number of a client's update, or with
      by="server" of the round's mean of the clipped updates.
    by, sampling, on, what, scale: as of a `Gaussian`.

    Raises BadInput for a number out of its range.

    >>> Laplace(clip=1, noise_scale=0.5).words
    "Laplace noise of scale 0.5 on each client's update"
    """

    law: ClassVar[Law] = "laplace"
    order: ClassVar[int] = 1  # of the norm that is clipped
    of: ClassVar[Unit] = "client"  # a client's whole update is clipped
    steps: ClassVar[int] = 1
    clip: float
    noise_scale: float
    by: Literal["client", "server"] = "client"
    sampling: Sampling | None = None
    on: Literal["mean", "sum"] = "mean"
    what: str = ""
    scale: Literal["public", "private"] = field(default="public", kw_only=True)

    def __post_init__(self) -> None:
        _check_numbers(self, {"clip": self.clip, "noise_scale": self.noise_scale})
        _check_place(self)
        if self.sampling is not None:
            if not isinstance(self.sampling, Sampling) or self.sampling.kind != "poisson":
                raise BadInput(
                    f"Laplace: sampling = {self.sampling!r}: expected Sampling('poisson', population, cohort)"
                )
            if self.sampling.unit != "client":
                raise BadInput(
                    "Laplace: its clip is of a client, so clients are sampled; give Sampling(…, unit='client')"
                )
            _check_lot(self, self.sampling)

    @property
    def noise_std(self) -> float:
        return sqrt(2) * self.noise_scale

    @property
    def spread(self) -> float:
        """What a bound is divided by for a release's ratio."""
        return self.noise_scale

    @property
    def words(self) -> str:
        on = WHERE[self.by].format(self)
        return f"Laplace noise of scale {self.noise_scale:g} on {on}"

    @property
    def clip_words(self) -> str:
        """
        >>> Laplace(clip=1, noise_scale=0.5).clip_words
        "each client's update clipped to L1 norm 1"
        """
        return f"each client's update clipped{BY[self.by]} to L1 norm {self.clip:g}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Correlated:
    """Gaussian noise of a server that is correlated over the rounds (DP-FTRL, BandMF, BLT), as its owner declares it:
    all rounds together are one release. Nothing is drawn here.

    clip: C > 0, the L2 norm of each client's update, in parameter units.
    noise_std: > 0, the standard deviation of the white noise Z in parameter units: round t gets row t of C⁻¹ Z.
    matrix: C, the strategy matrix (n, n) of n rounds, lower triangular; (n,) for the first column of a Toeplitz one; or
      the mechanism's name and numbers, as {"name": "band-mf", "rounds": 16, "bands": 4} (`matrix.strategy_of`).
    on: whether the noise is on the round's "mean", or on its "sum".
    scale: as of a `Gaussian`.

    Raises BadInput for a number out of its range, or a matrix that is none.

    >>> Correlated(clip=1, noise_std=0.5, matrix={"name": "dp-ftrl", "rounds": 8}).words
    "Gaussian noise from white noise of standard deviation 0.5, correlated over 8 rounds by a tree (DP-FTRL), on the \
round's mean, by the server"
    """

    law: ClassVar[Law] = "gaussian"
    order: ClassVar[int] = 2  # of the norm that is clipped
    of: ClassVar[Unit] = "client"  # a client's whole update is clipped
    by: ClassVar[Literal["server"]] = "server"
    steps: ClassVar[int] = 1
    sampling: ClassVar[None] = None  # a round's noise hides in the others', so that a secret cohort amplifies nothing
    clip: float
    noise_std: float
    matrix: Any
    on: Literal["mean", "sum"] = "mean"
    what: str = ""
    scale: Literal["public", "private"] = field(default="public", kw_only=True)

    def __post_init__(self) -> None:
        _check_numbers(self, {"clip": self.clip, "noise_std": self.noise_std})
        _check_place(self)
        object.__setattr__(self, "matrix", strategy_of(self.matrix))

    @property
    def strategy(self) -> Declarable:
        return cast(Declarable, self.matrix)

    def in_round(self, number: int) -> Gaussian | None:
        """The noise of one round by itself; None beyond the matrix."""
        if number >= self.strategy.rounds:
            return None
        std = self.noise_std * float(stds_of(self.strategy)[number])
        return Gaussian(self.clip, std, by="server", on=self.on, scale=self.scale)

    @property
    def spread(self) -> float:
        """What a bound is divided by for a release's ratio, of one round whose column has length 1."""
        return self.noise_std

    @property
    def words(self) -> str:
        white = f"Gaussian noise from white noise of standard deviation {self.noise_std:g}"
        return f"{white}, {correlation_words(self.strategy)}, on the round's {self.on}, by the server"

    @property
    def clip_words(self) -> str:
        return f"each client's update clipped by the server to L2 norm {self.clip:g}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        row = {key: getattr(self, key) for key in ("clip", "noise_std", "on", "what", "scale")}
        return {**row, "matrix": plain_of(self.strategy)}


Declared = Gaussian | Laplace | Correlated


def in_round(one: Declared, number: int) -> Gaussian | Laplace | None:
    """What one round has of it, by itself; None beyond the rounds of a matrix."""
    if isinstance(one, Correlated):
        return one.in_round(number)
    return one


def _finite_number(value: object) -> bool:
    """A Python number that a float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def _check_numbers(one: Declared, numbers: Mapping[str, object]) -> None:
    law = type(one).__name__
    for name, value in numbers.items():
        if not (_finite_number(value) and LEAST_SIZE <= cast(float, value) <= MOST_SIZE):
            raise BadInput(
                f"{law}: {name} = {short(value)} must be a number above 0, from {LEAST_SIZE:g} to {MOST_SIZE:g};"
                " without noise declare nothing"
            )
    if not isinstance(one.what, str):
        raise BadInput(f"{law}: what = {short(one.what)}; expected its name")
    if one.scale not in ("public", "private"):
        raise BadInput(f"{law}: scale = {short(one.scale)}; clip and noise are 'public' numbers or 'private' ones")
    if one.by not in ("client", "server"):
        raise BadInput(f"{law}: by = {short(one.by)}; noise is added by the 'client' or by the 'server'")


def _check_place(one: Declared) -> None:
    if one.on not in ("mean", "sum") or (one.on == "sum" and one.by == "client"):
        raise BadInput(f"{type(one).__name__}: on = {one.on!r}; a server's noise is on the 'mean' or on the 'sum'")


def _check_lot(one: Declared, lot: Sampling) -> None:
    law = type(one).__name__
    if one.of == "client" and one.by == "client":
        raise BadInput(
            f"{law}: who sees a client's own upload sees that it was drawn, so sampling of clients goes with by ="
            " 'server'"
        )
    if type(lot.population) is not int or not 1 <= lot.population <= MOST_RECORDS or not _finite_number(lot.cohort):
        raise BadInput(
            f"{law}: sampling {short(lot.cohort)} of {short(lot.population)}: expected a number, of a whole number"
            " from 1 on, below 2^53"
        )
    if lot.kind == "without_replacement" and lot.cohort != int(lot.cohort):
        raise BadInput(f"{law}: sampling {lot.cohort:g} of {lot.population} exactly: a whole number is drawn")
    if not 0 < lot.cohort <= lot.population:
        raise BadInput(f"{law}: sampling {lot.cohort:g} of {lot.population}: a sample fits in its population")


def mechanism_of_plain(values: Mapping[str, Any]) -> Declared:
    """The inverse of `plain`: a Laplace where there is a noise_scale, a Correlated where there is a matrix, else a
    Gaussian. Raises BadInput.

    >>> mechanism_of_plain({"clip": 1.0, "noise_scale": 0.5})
    Laplace(clip=1.0, noise_scale=0.5, by='client', sampling=None, on='mean', what='', scale='public')
    """
    if not isinstance(values, Mapping):
        raise BadInput(
            f"mechanism = {short(values)}: expected a table with clip, and noise_std, noise_multiplier or noise_scale"
        )
    kind: Callable[..., Declared] = Laplace if "noise_scale" in values else Gaussian
    lot = values.get("sampling")
    try:
        if "matrix" in values:
            kind = Correlated
            return kind(**{key: value for key, value in values.items() if (key, value) != ("by", "server")})
        return kind(**{**values, "sampling": None if lot is None else Sampling(**lot)})
    except TypeError as error:
        why = str(error).replace(f"{kind.__name__}.__init__()", "it")
        raise BadInput(f"mechanism = {str(dict(values))[:200]} is no {kind.__name__} ({why})") from None


def mechanisms_of(mechanism: object) -> tuple[Declared, ...]:
    """One mechanism, several or none, as several. Raises BadInput for anything else."""
    if mechanism is None:
        return ()
    all_of = mechanism if isinstance(mechanism, list | tuple) else (mechanism,)
    if wrong := [one for one in all_of if not isinstance(one, Declared)]:
        raise BadInput(
            f"mechanism = {str(wrong[0])[:80]!r}: expected Gaussian(clip=…, noise_std=…, by=…), Laplace(clip=…,"
            " noise_scale=…, by=…), Correlated(clip=…, noise_std=…, matrix=…), or None"
        )
    if len(all_of) > 1 and any(isinstance(one, Correlated) for one in all_of):
        raise BadInput("mechanism: Correlated noise is declared alone; beside it no other noise is priced")
    return tuple(all_of)
