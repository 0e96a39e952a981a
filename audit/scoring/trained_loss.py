"""Whether a recorded training minimised the loss that attacks take it for.

A training by this tool states its loss. A recording does not, and an inversion or a membership attack that assumes
another loss may find nothing where much leaks. The auditor holds the records behind uploads, so it can compare:

    fits     uploads are gradients of that loss on their records, or what the declared local training makes of them
    misfit   an upload is a gradient of some loss on its records (J δ: J the outputs' derivatives by the weights, δ any
             numbers), and not of this one, however its records are weighed
    neither  several local steps, Adam, compression or noise: nothing is told of the loss

Only directions are compared, beside the weights' own (weight decay): learning rates, clips and averages cancel.
Nothing from here reaches an attack.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...attacks.inversion.read.local_training import LINEAR
from ...defenses.engine import looped
from ...defenses.layout import Layout
from ...defenses.local import LocalJob, LocalTraining, batch_order
from ...defenses.losses import loss_of
from ...defenses.terms import Observer
from ..setup.auditor import Auditor
from ..setup.folder import Setup

OTHERS = ("cross_entropy", "bce_with_logits", "squared_error", "focal", "absolute_error")  # that may be named instead
FITS = 0.03  # of an upload's length may be left: rounding leaves 1e-5, BCE of two classes in a fresh network 0.09
MISFIT = 0.1  # is left at least: below, an attack's own mistake is larger
SHARPER = 0.1  # of what the loss leaves, and of what is left by J after the step, is left by another loss at most:
# one step leaves a 1000th; of several steps every loss leaves as much
MOST_UPLOADS = 8  # compared, spread over rounds: those of one training are alike
MOST_OUTPUTS = 512  # of all records together; each is a backward pass
MOST_NUMBERS = 2**25  # of J: a quarter of a GiB in float64
MOST_SIMULATED = 2**30  # records stepped on times parameters, for an upload: seconds
ROUNDING = 1e-6  # of a vector's length, by float32
LEAST = 1e-300  # in place of a length of 0


@dataclass(frozen=True, eq=False)
class Upload:
    """What a client sent, and the records behind it.

    network: in the mode that its client trained in. weights: (d,), of the broadcast before. value: (d,), a gradient or
    an update. inputs: (n, *shape). targets: (n,). loss: as `loss_of` reads it. outputs: of the network, for a record.
    """

    network: nn.Module
    layout: Layout
    weights: Tensor
    value: Tensor
    is_gradient: bool
    inputs: Tensor
    targets: Tensor
    loss: str
    outputs: int

    @property
    def is_silent(self) -> bool:
        """Whether nothing was sent beside the weights' own direction: any loss may have made that."""
        rest = _without(self.value.double(), self.weights.double())
        return float(rest.norm()) <= ROUNDING * float(self.value.double().norm())

    def left_by_step(self) -> float:
        """The share of the value's length that one step of the loss on all records leaves."""
        ran = LocalTraining(loss=self.loss, batch_size=len(self.inputs))
        gradient = looped([self._job(ran, "gradient")])[0].value
        return self._left_by(gradient if self.is_gradient else -gradient)

    def left_by_training(self, training: LocalTraining) -> float:
        """The share that declared local training leaves, its batches in any order."""
        return self._left_by(looped([self._job(training, "update")])[0].value)

    def left_by_loss(self) -> tuple[float, float, float]:
        """The shares that are left by gradients of the loss, its records weighed as it suits; by those of the best loss
        of all; and by those at the weights after the step (1 where nobody knows these).
        """
        derivatives, slopes = self._derivatives(self.weights)
        weighed = (derivatives * slopes).sum(2)
        after = 1.0
        if not self.is_gradient:
            after = self._left_by_span(self._derivatives(self.weights + self.value)[0].flatten(1))
        return self._left_by_span(weighed), self._left_by_span(derivatives.flatten(1)), after

    def _job(self, training: LocalTraining, share: Literal["gradient", "update"]) -> LocalJob:
        rows = torch.arange(len(self.inputs))
        batches = batch_order(training, share, rows, 0, torch.Generator().manual_seed)
        network = copy.deepcopy(self.network)  # running statistics move
        return LocalJob(
            network, self.layout, training, self.weights, self.inputs, self.targets, batches, share, training.lr
        )

    def _left_by(self, predicted: Tensor) -> float:
        """The share that no positive multiple of `predicted` (d,) explains, beside the weights."""
        value, other = (_without(vector.double(), self.weights.double()) for vector in (self.value, predicted))
        multiple = max(0.0, float(value @ other) / max(LEAST, float(other @ other)))
        return float((value - multiple * other).norm()) / max(LEAST, float(value.norm()))

    def _left_by_span(self, columns: Tensor) -> float:
        """The share outside the span of `columns` (d, k) and the weights."""
        spanning = torch.cat([columns, self.weights.double()[:, None]], 1)
        basis = torch.linalg.qr(spanning / spanning.norm(dim=0).clamp_min(LEAST))[0]
        value = self.value.double()
        return float((value - basis @ (basis.T @ value)).norm()) / max(LEAST, float(value.norm()))

    def _derivatives(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(d, n, outputs), of the outputs by the weights; and (n, outputs), of the loss by the outputs."""
        named = {name: part.clone().requires_grad_() for name, part in self.layout.split(weights).items()}
        outputs = functional_call(copy.deepcopy(self.network), named, (self.inputs,))
        slopes = torch.autograd.grad(
            loss_of(self.loss).values(outputs, self.targets).sum(), outputs, retain_graph=True
        )[0]
        rows = [torch.autograd.grad(output, list(named.values()), retain_graph=True) for output in outputs.flatten()]
        columns = torch.stack([self.layout.join(dict(zip(named, row))).double() for row in rows], 1)
        return columns.view(self.layout.dim, *outputs.shape), slopes.double()


def doubt_of_loss(setup: Setup, auditor: Auditor, allow_model: str | None) -> str:
    """What is wrong with the loss that attacks assume, or unknown of it, a clause; "" where it is known or fits.

    Args:
        setup, auditor: both halves. allow_model: the user's word for a network of its owner's class.

    Raises:
        BadInput: the network cannot be built.
    """
    recorded = setup.manifest.recorded
    if recorded is None:
        return ""
    loss = loss_of(setup.facts.loss)
    taken = f"loss {'declared' if recorded.loss else 'taken'} as {loss.words}{loss.text.removeprefix(loss.name)}"
    training = None
    if recorded.local and setup.scheme.local.per_example is None:
        training = setup.scheme.local
    with torch.random.fork_rng(devices=[]):  # a Dropout draws
        torch.manual_seed(0)
        compared: list[float] = []
        unexplained: list[tuple[Upload, ...]] = []
        silent = 0
        for modes in _uploads(setup, auditor, allow_model):
            if modes[0].is_silent:
                silent += 1
                continue
            compared.append(_left(modes, training))
            if compared[-1] > FITS:
                unexplained.append(modes)
        if not compared and recorded.loss:
            return ""
        if not compared:
            why = "no upload came with its records"
            if silent:
                why = "every upload that came with records is 0"
            return f"{taken}, not checked: {why}"
        smallest = min(unexplained, key=lambda modes: len(modes[0].inputs), default=())
        misfits = [shares for upload in smallest if (shares := misfit(upload, training)) is not None]
        if not misfits and (median(compared) <= FITS or recorded.loss):
            return ""
        other = _fitting(smallest)
    if misfits:
        by_loss, by_any = min(misfits)
        return (
            f"{taken}, which does not fit: its gradients of the records leave {100 * by_loss:.0f} % of an upload's"
            f" length unexplained, those of another loss, or of weighed records, {100 * by_any:.1f} %{other}"
        )
    return f"{taken}, not checked: no upload is one step's gradient of its records, weighed alike"


def _fitting(modes: tuple[Upload, ...]) -> str:
    """That one step of another loss makes the upload, a clause; "" where none is found."""
    if not modes:
        return ""
    upload = modes[0]
    whole = not upload.targets.is_floating_point() and upload.targets.dim() == 1
    if not whole or loss_of(upload.loss).several:
        return ""
    able = [name for name in OTHERS if not loss_of(name).misfit(upload.outputs, max(2, upload.outputs))]
    left = {name: min(replace(one, loss=name).left_by_step() for one in modes) for name in able}
    return next((f"; those of {name!r} explain it" for name, share in left.items() if share <= FITS), "")


def misfit(upload: Upload, training: LocalTraining | None) -> tuple[float, float] | None:
    """The shares of an upload's length that its loss and the best of all losses leave; None where they prove nothing.

    Class weights, clips of records and a batch of some of them are no other loss, so records are weighed as it suits,
    but where one step on all of them is declared. Networks that are linear in their weights have one J everywhere, so
    that many steps look like one: J after the step must leave more, but where one step is declared.

    training: as declared, None where nobody tells.
    """
    numbers = len(upload.inputs) * upload.outputs
    if numbers > MOST_OUTPUTS or numbers * upload.layout.dim > MOST_NUMBERS or 2 * numbers > upload.layout.dim:
        return None  # too long, or so many that they span everything
    by_loss, by_any, after = upload.left_by_loss()
    if training is not None and _one_step(training, len(upload.inputs)):
        by_loss, after = upload.left_by_step(), 1.0
    proven = by_loss >= MISFIT and by_any <= SHARPER * min(by_loss, after)
    if proven:
        return (by_loss, by_any)
    return None


def _simulated(training: LocalTraining, upload: Upload) -> bool:
    """Whether declared local training is short enough to be run again."""
    if upload.is_gradient:
        return False
    count = len(upload.inputs)
    if training.steps is None:
        records = count * (training.epochs or 1)
    else:
        records = training.steps * training.batch_size
    return records * upload.layout.dim <= MOST_SIMULATED


def _one_step(training: LocalTraining, records: int) -> bool:
    steps = training.steps if training.steps is not None else training.epochs
    return training.optimiser in LINEAR and steps == 1 and training.batch_size >= records


def _left(modes: tuple[Upload, ...], training: LocalTraining | None) -> float:
    """The least share that anything leaves which the loss may have made; the first that fits will do."""
    left = 1.0
    for upload in modes:
        left = min(left, upload.left_by_step())
        if left > FITS and training is not None and _simulated(training, upload):
            left = min(left, upload.left_by_training(training))
        if left <= FITS:
            break
    return left


def _uploads(setup: Setup, auditor: Auditor, allow_model: str | None) -> Iterator[tuple[Upload, ...]]:
    """At most `MOST_UPLOADS` that came with records, each with its network in training and in evaluation."""
    truth = auditor.truth
    if truth is None:
        return
    view = setup.view(Observer("server"), allow_model)
    sent = {message.round: message for message in view.messages if message.broadcast}
    paired = [m for m in view.messages if not m.broadcast and m.round in sent and m.id in truth.messages]
    some = torch.randperm(len(paired), generator=torch.Generator().manual_seed(0))[:MOST_UPLOADS]
    for message in (paired[place] for place in sorted(some.tolist())):  # by lot: every second may be one client's
        before, rows = sent[message.round], list(truth.messages[message.id])
        weights, value = before.load(), message.load()
        network = copy.deepcopy(view.module)
        network.load_state_dict(dict(before.beside()), strict=False)
        upload = Upload(
            network.train(),
            view.layout,
            weights,
            value - weights if message.kind == "weights" else value,
            message.kind == "gradient",
            truth.inputs[rows],
            truth.targets[rows],
            view.facts.loss,
            _outputs(network, truth.inputs[rows[:1]]),
        )
        yield upload, replace(upload, network=copy.deepcopy(network).eval())


def _outputs(network: nn.Module, inputs: Tensor) -> int:
    """How many numbers it gives for one record (1, *shape)."""
    with torch.no_grad():
        return copy.deepcopy(network).eval()(inputs).numel()


def _without(value: Tensor, direction: Tensor) -> Tensor:
    return value - float(value @ direction) / max(LEAST, float(direction @ direction)) * direction
