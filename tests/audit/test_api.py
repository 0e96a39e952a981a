"""`dpfl_audit.train` and `dpfl_audit.run`: what the commands do, from Python and in a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from html import unescape
from pathlib import Path
from typing import Any

import dpfl_audit
import pytest
from command import call, content
from configs import toml
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.setup.config import parse_config

pytestmark = pytest.mark.usefixtures("without_closeness")
CONFIG: dict[str, Any] = {
    "seed": 4,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
    "model": {"name": "mlp", "options": {"widths": [8]}},
    "local": {"optimiser": "sgd", "batch_size": 5},
    "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 2, "share": "gradient"},
    "capture": {"auxiliary": 19},  # too few for reference classifiers, which take a minute
    "attack": {"inversion": {"iterations": 5, "objective": "cosine"}},
}
TOML = toml(CONFIG)


@pytest.fixture(scope="module")
def setup() -> Any:
    return dpfl_audit.train(CONFIG, noise_key="published", quiet=True)


@pytest.fixture(scope="module")
def results(setup) -> dpfl_audit.Results:
    return dpfl_audit.run(setup, quiet=True)


def test_python_and_the_command_write_the_same_bytes(tmp_path):
    (tmp_path / "c.toml").write_text(TOML)
    command = call("train", tmp_path / "c.toml", "-o", tmp_path / "a", "--noise-key", "published", "--quiet")
    assert command == 0 and call("run", tmp_path / "a", "-o", tmp_path / "ra", "--quiet") == 0
    for name, config in {"path": tmp_path / "c.toml", "mapping": CONFIG, "Config": parse_config(CONFIG)}.items():
        setup = dpfl_audit.train(config, tmp_path / name, noise_key="published", quiet=True)
        assert content(setup.folder) == content(tmp_path / "a"), name
    dpfl_audit.run(tmp_path / "mapping", tmp_path / "rb", quiet=True)
    assert content(tmp_path / "rb") == content(tmp_path / "ra")


def test_overrides_and_seed_are_the_command_s_and_leave_the_mapping_alone(tmp_path):
    before = repr(CONFIG)
    setup = dpfl_audit.train(CONFIG, tmp_path / "s", overrides=["scheme.rounds=1"], seed=9, quiet=True)
    assert (setup.manifest.rounds, setup.manifest.seed) == (1, 9) and repr(CONFIG) == before


def test_noise_is_secret_unless_asked_otherwise(tmp_path, setup):
    keys = {
        (dpfl_audit.train(CONFIG, tmp_path / name, quiet=True).folder / "auditor" / "noise-key").read_text()
        for name in "ab"
    }
    assert len(keys) == 2 and all(re.fullmatch("[0-9a-f]{64}\n", key) for key in keys)
    assert setup.manifest.noise_key == "published"


def test_what_a_prompt_shows_is_one_line(setup, results):
    """Before, every message and number: twenty thousand letters for a name typed at a prompt."""
    assert repr(setup) == f"<Setup {str(setup.folder)!r}: {repr(setup).partition(': ')[2]}" and len(repr(setup)) < 300
    assert re.fullmatch(r"<Results of 'ldp': .+ · .+; \d attacks?>", str(results)) and repr(results) == str(results)


def test_results_are_tables_and_a_page(results, capsys):
    assert isinstance(results, dpfl_audit.Results) and results.setup.scheme == "ldp"
    assert {"psnr", "ssim"} <= set(results.frame()["metric"]) and len(results.epsilon_frame()) == len(results.epsilon)
    results.show()
    printed = capsys.readouterr().out
    path, why = printed.strip().split(" ", 1)
    assert Path(path).read_text() == render([results.folder]) and ".save(folder)" in why


def test_what_is_saved_is_all_of_it_and_opens_alone(results, tmp_path):
    page = results.save(tmp_path / "deep" / "kept")
    assert page == tmp_path / "deep" / "kept" / "report.html"
    kept = content(page.parent)
    kept.pop("report.html")
    ours = {name: data for name, data in content(results.folder).items() if name != "report.html"}
    assert kept == ours and any(name.startswith("evidence/") for name in kept)
    again = dpfl_audit.Results.read(page.parent)
    assert again.frame().equals(results.frame()) and page.read_text() == render([page.parent])
    assert results.save(page.parent) == page == again.save(page.parent)  # again, and onto itself


def test_a_folder_with_anything_else_in_it_is_not_written(results, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(dpfl_audit.BadInput, match="is not empty and holds no copy of these results"):
        results.save(tmp_path)
    assert content(tmp_path) == {"mine.txt": b"mine"}
    with pytest.raises(dpfl_audit.BadInput, match="lies inside the results"):
        results.save(results.folder / "copy")
    assert not (results.folder / "copy").exists()


def test_in_a_notebook_the_page_is_in_a_frame_of_its_own(results, monkeypatch, capsys):
    shown: list[Any] = []
    shell = type("ZMQInteractiveShell", (), {})()
    ipython = types.SimpleNamespace(get_ipython=lambda: shell, display=types.SimpleNamespace(display=shown.append))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    results.show()
    assert shown == [results] and capsys.readouterr().out == ""
    frame = re.fullmatch(r'<iframe title="[^"<>]*" srcdoc="([^"<>]*)" [^<>]*></iframe>', results._repr_html_())
    assert frame is not None and unescape(frame[1]) == render([results.folder])


def test_results_of_no_folder_say_so(results):
    with pytest.raises(dpfl_audit.BadInput, match="not read from a folder"):
        dpfl_audit.Results.model_validate(results.model_dump(by_alias=True)).show()


@pytest.mark.full
def test_a_temporary_folder_is_its_owner_s_alone_and_goes_with_the_process(setup):
    assert setup.folder.stat().st_mode & 0o077 == 0
    code = f"import dpfl_audit; print(dpfl_audit.train({CONFIG!r}, quiet=True).folder)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = Path(run.stdout.strip())
    assert folder.name.startswith("dpfl-audit-") and not folder.exists() and run.stderr == ""


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda s: dpfl_audit.train([1]), "config is a list; expected a TOML file's path, a mapping"),
        (lambda s: dpfl_audit.train("nowhere.toml"), "there is no config file 'nowhere.toml'"),
        (lambda s: dpfl_audit.train({"sceme": {}}), "config: unknown key 'sceme'; did you mean 'scheme'?"),
        (lambda s: dpfl_audit.train(CONFIG, seed="x"), "config: seed = 'x': expected a whole number"),
        (lambda s: dpfl_audit.train(CONFIG, engine="bached"), "engine = 'bached' cannot be chosen; did you mean"),
        (lambda s: dpfl_audit.train(CONFIG, overrides="seed=1"), "overrides = 'seed=1': expected a list of texts"),
        (lambda s: dpfl_audit.train(CONFIG, noise_key="nowhere"), "nowhere is missing"),
        (lambda s: dpfl_audit.run(CONFIG), "setup is a dict; expected what dpfl_audit.train returned, or a folder"),
        (lambda s: dpfl_audit.run("nowhere"), "nowhere"),
        (lambda s: dpfl_audit.run(s, attacks="inversion"), "expected a list of texts, such as ['inversion']"),
        (lambda s: dpfl_audit.run(s, attacks=["invertion"]), "did you mean 'inversion'?"),
        (lambda s: dpfl_audit.run(s, observers=["srver"]), "did you mean 'server'?"),
        (lambda s: dpfl_audit.run(s, device="gpu"), "device = 'gpu' cannot be chosen"),
        (lambda s: dpfl_audit.run(s, seed=-1), "seed = -1: expected a whole number from 0"),
        (lambda s: dpfl_audit.run(s, lpips_weights="nowhere.pth"), "nowhere.pth do not exist"),
    ],
)
def test_a_mistake_is_one_sentence(setup, mistake, sentence):
    with pytest.raises(dpfl_audit.BadInput) as error:
        mistake(setup)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_importing_the_package_does_not_pay_for_torch():
    code = "import sys, dpfl_audit; dpfl_audit.BadInput; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
