"""A muted row weighs nothing, counts, batches and noise stay; a planted gradient replaces a row's own. Both engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining, PerExample
from torch import Tensor, nn

ENGINES = pytest.mark.parametrize("engine", [looped, batched], ids=["looped", "batched"])


class Linear(nn.Module):
    """w·x, written so that the generic batched engine is used."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w.T


def job_of(
    module: nn.Module, training: LocalTraining, inputs: Tensor, targets: Tensor, batches: list[list[int]], **changes
) -> LocalJob:
    layout = Layout.of(module)
    start = layout.join({name: p.detach() for name, p in module.named_parameters()})
    return LocalJob(
        module, layout, training, start, inputs, targets, torch.tensor(batches), "update", training.lr, **changes
    )


@ENGINES
@pytest.mark.parametrize(
    "module", [Linear(), nn.Sequential(nn.Linear(2, 1, bias=False, dtype=torch.float64))], ids=["generic", "chain"]
)
def test_a_muted_row_by_hand(engine, module):
    """½(w·x − y)² at w = 0 has gradient −y·x. Of rows (1, 2)·1, (3, 0)·2, (0, 4)·1 the second is muted: the step is
    lr·(x1 + x3)/3, not /2.
    """
    with torch.no_grad():
        next(module.parameters()).zero_()
    inputs, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]]), torch.tensor([1.0, 2.0, 1.0])
    job = job_of(
        module,
        LocalTraining(optimiser="sgd", lr=0.3, batch_size=3, loss="squared_error"),
        inputs,
        targets,
        [[0, 1, 2]],
        muted=(1,),
    )
    (made,) = engine([job])
    assert torch.allclose(made.value, torch.tensor([0.1, 0.6], dtype=torch.float64), atol=1e-7)
    (gradient,) = engine([replace(job, share="gradient")])
    assert torch.allclose(gradient.value, torch.tensor([-1 / 3, -2.0], dtype=torch.float64), atol=1e-7)


@ENGINES
def test_a_muted_row_in_dp_sgd_by_hand(engine):
    """Clipped to 1 the gradients are −(1, 2)/√5, −(1, 0), −(0, 1); muting changes neither noise nor divisor."""
    inputs, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]]), torch.tensor([1.0, 2.0, 1.0])
    training = LocalTraining(
        optimiser="sgd", lr=3.0, batch_size=3, loss="squared_error", per_example=PerExample(1.0, 0.7)
    )
    job = job_of(Linear(), training, inputs, targets, [[0, 1, 2]], noise_seed=4)
    whole, muted, planted = (
        engine([j])[0].value
        for j in (job, replace(job, muted=(1,)), replace(job, planted=((1, torch.tensor([0.0, -5.0])),)))
    )
    assert torch.allclose(whole - muted, torch.tensor([1.0, 0.0], dtype=torch.float64), atol=1e-6)
    assert torch.allclose(planted - muted, torch.tensor([0.0, 1.0], dtype=torch.float64), atol=1e-6)


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(optimiser="sgd", lr=0.1, batch_size=4),
        LocalTraining(optimiser="adam", lr=0.01, batch_size=4),
        LocalTraining(optimiser="sgd", lr=0.1, batch_size=4, per_example=PerExample(0.5, 1.2)),
    ],
    ids=["sgd", "adam", "dp-sgd"],
)
def test_engines_agree_on_muted_rows(training):
    """Jobs with different muted rows go in together and come out as the looped engine has them, one by one."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs, targets = torch.randn(8, 5), torch.arange(8) % 3
    muted: list[tuple[int, ...]] = [(), (2,), (2, 7), (2,), tuple(range(8))]
    jobs = [
        job_of(module, training, inputs, targets, [[0, 1, 2, 3], [4, 5, 6, 7]], noise_seed=3, muted=m) for m in muted
    ]
    together, alone = batched(jobs), [looped([job])[0] for job in jobs]
    assert all((a.value - b.value).abs().max() < 1e-9 for a, b in zip(together, alone))
    if training.per_example is None:
        assert (together[-1].value == 0).all()  # nobody is left: no gradient, no step


def test_a_gradient_is_planted_only_where_it_is_clipped_by_itself():
    with pytest.raises(ValueError, match="per_example"):
        job_of(Linear(), LocalTraining(), torch.zeros(1, 2), torch.zeros(1), [[0]], planted=((0, torch.zeros(2)),))
