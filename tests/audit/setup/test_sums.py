"""What is public of a server's sums, and what stands behind a model for those who score."""

from __future__ import annotations

from math import sqrt

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks.inversion.rounds import every_round
from dpfl_audit.audit.scoring.questions import rows_of
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.defenses.terms import Observer


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
    assert (view.sums[0].clients, view.sums[0].records, view.sums[0].everybody, view.sums[0].scale) == (3, 6, True, 1.0)
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
