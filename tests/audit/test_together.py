"""Several trainings in lock-step and several audits as one: each as if it were alone, and a kill costs nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command import content
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.run import RunOptions, carry_out, carry_out_together, opened
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.capture import Training, train, train_together
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build, with_scheme
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.key import PUBLISHED

pytestmark = pytest.mark.usefixtures("without_closeness")
RAW = {
    "data": {"name": "digits", "clients": 3, "samples_per_client": 10},
    "model": {"name": "mlp", "options": {"widths": [8]}},
    "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 10},
    "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 3, "share": "gradient"},
    "capture": {"clients": [0, 1], "rounds": 1},
    "attack": {"inversion": {"iterations": 8}},
}
SETTINGS = ("scheme.sigma=0.01", "scheme.sigma=1.0", "scheme.clip=0.1", "local.lr=0.1")


def experiments() -> list[Experiment]:
    """With the data and the network of the first, so that they stack."""
    first = build(parse_config(RAW), Path())
    configs = [parse_config(RAW, "", [setting]) for setting in SETTINGS]
    return [with_scheme(config, first.data, first.module, first.clients) for config in configs]


def trained(folder: Path) -> list[Path]:
    return train_together([Training(e, folder / str(i), PUBLISHED) for i, e in enumerate(experiments())])


def test_trainings_in_lock_step_are_as_if_alone(tmp_path: Path) -> None:
    folders = trained(tmp_path / "together")
    for i, experiment in enumerate(experiments()):
        train(experiment, tmp_path / "alone" / str(i), key=PUBLISHED)
        together, alone = open_setup(folders[i]), open_setup(tmp_path / "alone" / str(i))
        assert together.manifest.digest == alone.manifest.digest
        assert [m.id for m in together.messages] == [m.id for m in alone.messages]
        for one, other in zip(together.messages, alone.messages):
            assert torch.allclose(together.load(one), alone.load(other), atol=1e-6)


def test_a_training_that_is_done_is_left_as_it_is_and_the_others_are_done(tmp_path: Path) -> None:
    first, *_ = experiments()
    train(first, tmp_path / "0", key=PUBLISHED)
    before = content(tmp_path / "0", but=())
    assert trained(tmp_path) == [tmp_path / str(i) for i in range(4)]
    assert content(tmp_path / "0", but=()) == before
    assert all(open_setup(tmp_path / str(i)).manifest.status == "complete" for i in range(4))


def test_killed_in_lock_step_the_same_company_goes_on(tmp_path: Path, monkeypatch) -> None:
    trained(tmp_path / "whole")
    calls, save = 0, capture.save_state

    def killed(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 8:  # all have a round, one has two
            raise KeyboardInterrupt
        save(*args)

    monkeypatch.setattr(capture, "save_state", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed")
    monkeypatch.setattr(capture, "save_state", save)
    trained(tmp_path / "killed")
    for i in range(4):
        whole, killed_one = (open_setup(tmp_path / name / str(i)) for name in ("whole", "killed"))
        assert all(torch.allclose(whole.load(m), killed_one.load(m), atol=1e-6) for m in whole.messages)


def test_progress_is_of_all_trainings(tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    train_together(
        [Training(e, tmp_path / str(i), PUBLISHED) for i, e in enumerate(experiments())],
        progress=lambda done, total, words="": said.append((done, total)),
    )
    assert said[0] == (0, 12) and said[-1] == (12, 12) and said == sorted(said)


def test_one_that_is_refused_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="is not empty and holds no setup"):
        trained(tmp_path)
    assert (tmp_path / "1" / "thesis.tex").exists()


def audits(folders: list[Path], output: Path) -> list[dict[str, object]]:
    jobs = [opened(folder, RunOptions(attacks=("inversion",), pixels_only=True)) for folder in folders]
    return [json.loads(r.text()) for r in carry_out_together(jobs, [output / str(i) for i in range(len(folders))])]


@pytest.mark.full
def test_audits_as_one_solve_messages_at_equal_weights_together_and_are_as_if_alone(tmp_path, monkeypatch) -> None:
    folders = trained(tmp_path / "setups")
    calls: list[int] = []
    whole = Inversion.run_group

    def counted(self, parts, *rest):
        calls.append(len(parts))
        return whole(self, parts, *rest)

    monkeypatch.setattr(Inversion, "run_group", counted)
    together = audits(folders, tmp_path / "together")
    # One round's message of two clients in each setting: both objectives, one with a fixed prior, and where at least
    # half of it is noise, as in three of the settings, the spectrum's.
    assert calls == [2 * len(folders)] * 3 + [2 * 3]
    for i, folder in [*enumerate(folders)][::3]:
        job = opened(folder, RunOptions(attacks=("inversion",), pixels_only=True))
        alone = json.loads(carry_out(job, tmp_path / "alone" / str(i)).text())
        for one, other in zip(together[i]["attacks"], alone["attacks"], strict=True):
            assert one["client"] == other["client"] and one["assumed"] == other["assumed"]
            assert one["metrics"]["attack_loss"] == pytest.approx(other["metrics"]["attack_loss"], rel=1e-3)
            assert one["metrics"]["psnr"] == pytest.approx(other["metrics"]["psnr"], abs=0.05)
        assert together[i]["epsilon"] == alone["epsilon"]


@pytest.mark.full
def test_what_is_lost_of_one_audit_is_made_again_in_the_same_company(tmp_path: Path) -> None:
    folders = trained(tmp_path / "setups")[:2]
    audits(folders, tmp_path / "results")
    before = content(tmp_path / "results", but=())
    (tmp_path / "results" / "1" / "results.json").unlink()
    next((tmp_path / "results" / "1" / "evidence").iterdir()).unlink()
    mark = tmp_path / "results" / "1" / ".work" / "digest"
    mark.parent.mkdir()
    job = opened(folders[1], RunOptions(attacks=("inversion",), pixels_only=True))
    mark.write_text(job.digest)
    audits(folders, tmp_path / "results")
    assert content(tmp_path / "results", but=()) == before


def test_pixels_alone_say_what_was_left_out(tmp_path: Path) -> None:
    (folder, *_) = trained(tmp_path / "setups")
    (alone,) = audits([folder], tmp_path / "results")
    entry = alone["attacks"][0]
    assert entry["metrics"].get("lpips") is None and "pixels alone" in " ".join(entry["not_measured"].values())
    assert alone["classifiers"] == []
