"""What is public of a server's sums, and what stands behind a model for those who score."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks.inversion.read.rounds import all_rounds, every_round
from dpfl_audit.audit.scoring.questions import rows_of
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.presets import Population
from dpfl_audit.defenses.terms import Observer
from torch.func import functional_call
from torch.nn.functional import cross_entropy


def trained(folder, scheme: dict, capture: tuple[int, ...] = (0, 1, 2), local: dict | None = None, **data):
    config = {
        "data": {"name": "digits", "clients": 3, "samples_per_client": 6, **data},
        "model": {"name": "logistic"},
        "local": local or {"optimiser": "sgd", "lr": 0.5, "batch_size": 6, "epochs": 1},
        "scheme": {"rounds": 2, **scheme},
        "capture": {"clients": list(capture)},
        "claim": "none",
    }
    return dpfl_audit.train(config, folder, noise_key="published", quiet=True)


def test_a_servers_step_is_the_mean_of_the_clients_updates(tmp_path) -> None:
    setup = trained(tmp_path / "s", {"name": "fedavg", "share": "update"})
    view = setup.view(Observer("downlink"))
    assert {m.kind for m in view.messages} == {"weights"} and sorted(view.sums) == [0, 1]
    assert (view.sums[0].clients, view.sums[0].records, view.sums[0].everybody, view.sums[0].scale) == (
        3,
        18,
        True,
        1.0,
    )
    aims = every_round(view, setup.knowledge().beside(view))
    uploads = [m for m in setup.messages if m.sender != "server" and m.round == 0]
    mean = torch.stack([setup.load(m) for m in uploads]).mean(0)
    assert torch.allclose(aims[0].target.gradient, -mean / 0.5, atol=1e-6) and aims[0].count == 18
    assert setup.behind(aims[0].messages[0].id) == tuple(m.id for m in uploads)
    labels = torch.cat([setup.knowledge().labels[m.id] for m in uploads]).sort().values
    assert torch.equal(aims[0].target.labels, labels)
    auditor = Auditor(setup)

    class Made:
        message_ids = (aims[0].messages[0].id,)

    assert len(rows_of(auditor, Made())) == 18  # type: ignore[arg-type]
    assert setup.view(Observer("server")).sums == {}  # it sees the uploads themselves
    assert setup.view(Observer("model")).sums and not every_round(setup.view(Observer("model")), setup.knowledge())


def test_of_clients_that_were_not_captured_nothing_stands_behind_a_sum(tmp_path) -> None:
    setup = trained(tmp_path / "s", {"name": "fedavg", "share": "update"}, capture=(0, 1))
    last = next(m for m in setup.messages if m.sender == "server" and m.round == 1)
    assert setup.behind(last.id) == () and last.id not in setup.knowledge().labels


@pytest.mark.parametrize("share", ["update", "gradient"])
def test_the_noise_of_a_mean(tmp_path, share: str) -> None:
    setup = trained(
        tmp_path / "s",
        {"name": "ldp", "clip": 0.5, "sigma": 1.0, "share": share},
        local={"optimiser": "sgd", "lr": 0.5, "batch_size": 6},
    )
    view = setup.view(Observer("aggregate"))
    target = every_round(view, setup.knowledge().beside(view))[0].target
    scale = 0.5 if share == "update" else 1.0  # of a gradient the noise is in the gradient's units
    assert target.noise_std == pytest.approx(setup.manifest.facts.noise_std / sqrt(3) / scale)
    assert not target.scale_known and target.clip_norm is None  # each client's value was clipped by itself


def test_a_server_that_adds_noise_of_its_own(tmp_path) -> None:
    setup = trained(tmp_path / "s", {"name": "central-gaussian", "clip": 0.5, "noise_multiplier": 0.3})
    view = setup.view(Observer("downlink"))
    assert view.sums[0].noise_std == pytest.approx(0.3 * 0.5 / 3)


def unequal(folder, scheme: dict, records: tuple[int, ...] = (3, 6, 9), **local):
    """Trained by clients with so many records, all of them captured."""
    config = parse_config(
        {
            "data": {"name": "digits", "clients": 3, "samples_per_client": 9},
            "model": {"name": "logistic"},
            "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 9, **local},
            "scheme": {"rounds": 2, **scheme},
            "capture": {"clients": [0, 1, 2]},
            "claim": "none",
        }
    )
    made = build(config, folder)
    clients = [rows[:many] for rows, many in zip(made.clients, records)]
    scheme_of_them = made.preset.scheme(made.parameters, made.scheme.local, Population(records))
    train(replace(made, clients=clients, scheme=scheme_of_them), folder / "setup")
    return made, clients, open_setup(folder / "setup")


def test_a_sum_weighed_by_records_is_the_mean_gradient_of_all_records(tmp_path) -> None:
    """One full-batch step of each client: the server's step is −lr times the gradient of all records' mean loss."""
    made, clients, setup = unequal(
        tmp_path, {"name": "geometric", "clip": 1e6, "noise_std": 1e-9, "tau": 1, "ratio": 1.0}
    )
    view = setup.view(Observer("downlink"))
    assert (view.sums[0].clients, view.sums[0].records, view.sums[0].everybody) == (3, 18, True)
    aims = every_round(view, setup.knowledge().beside(view))
    rows = torch.cat(clients)
    module, at = made.module, made.layout.split(aims[0].target.weights)
    leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
    loss = cross_entropy(functional_call(module, leaves, (made.data.inputs[rows],)), made.data.targets[rows])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(leaves.values()))])
    assert torch.allclose(aims[0].target.gradient, gradient, atol=1e-5)
    assert torch.equal(aims[0].target.labels, made.data.targets[rows].sort().values) and aims[0].count == 18
    assert len(all_rounds(view, setup.knowledge().beside(view))[0].messages) == 2


def test_the_noise_of_a_sum_weighed_by_records(tmp_path) -> None:
    """Of noise c/n_k on each value, weighed n_k/n, the sum has √K·c/n; of equal noise σ it has σ√Σ(n_k/n)²."""
    _, _, setup = unequal(tmp_path / "a", {"name": "geometric", "clip": 50.0, "epsilon": 100.0, "ratio": 1.0})
    each = [m for m in setup.messages if m.sender != "server"]
    noise = setup.view(Observer("downlink")).sums[0].noise_std
    c = setup.manifest.facts.noise_std / ((1 / 3 + 1 / 6 + 1 / 9) / 3)
    assert each and noise == pytest.approx(sqrt(3) * c / 18)
    _, _, setup = unequal(tmp_path / "b", {"name": "geometric", "clip": 50.0, "noise_std": 0.1, "ratio": 1.0})
    assert setup.view(Observer("downlink")).sums[0].noise_std == pytest.approx(0.1 * sqrt(9 + 36 + 81) / 18)


@pytest.mark.parametrize(
    ("scheme", "local", "why"),
    [
        ({"name": "fedavg", "share": "update"}, {}, "averages their values whatever that number"),
        ({"name": "nbafl", "noise_std": 0.1}, {"batch_size": 3}, "unequally many local steps"),
    ],
)
def test_why_a_step_of_unequal_clients_is_no_message(tmp_path, scheme: dict, local: dict, why: str) -> None:
    _, _, setup = unequal(tmp_path, scheme, **local)
    view = setup.view(Observer("downlink"))
    assert view.sums == {} and "unequal" in view.why_no_sums and why in view.why_no_sums


@pytest.mark.parametrize(
    ("scheme", "data", "why"),
    [
        ({"name": "central-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "participants": 2}, {}, "is secret"),
        ({"name": "lcdp"}, {}, "more with the clients' values"),
        ({"name": "dpsgd"}, {}, "in secret"),
    ],
)
def test_why_a_step_is_no_message(tmp_path, scheme: dict, data: dict, why: str) -> None:
    setup = trained(tmp_path / "s", scheme, **data)
    view = setup.view(Observer("downlink"))
    assert view.sums == {} and why in view.why_no_sums
