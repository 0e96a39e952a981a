"""`audit weights`, from a server on this machine; nothing here reaches the internet."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lpips
import pytest
import torch
from command import called
from dpfl_audit.audit import weights
from dpfl_audit.metrics import perceptual


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The served folder, with SqueezeNet's file under a name of torchvision's kind; torch's cache is empty."""
    folder = tmp_path / "served"
    folder.mkdir()
    with torch.random.fork_rng(), pytest.warns(UserWarning, match="deprecated"):
        net = lpips.LPIPS(net="squeeze", pnet_rand=True, verbose=False).net
    torch.save({"features." + k.split(".", 1)[1]: v for k, v in net.state_dict().items()}, folder / "net.pth")
    digest = hashlib.sha256((folder / "net.pth").read_bytes()).hexdigest()
    file = (folder / "net.pth").rename(folder / f"squeezenet1_1-{digest[:8]}.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{file.name}"
        monkeypatch.setitem(perceptual.WEIGHTS, "squeeze", url)
        yield file
        server.shutdown()


def test_what_is_fetched_lies_where_lpips_looks_for_it(served, tmp_path, capsys):
    assert isinstance(perceptual.find(), perceptual.NotMeasured)
    code, out, err = called(capsys, "weights")
    home = tmp_path / "home" / "hub" / "checkpoints"
    assert (code, out, err) == (0, f"{home / served.name}\n", "")
    assert [p.name for p in home.iterdir()] == [served.name]
    assert perceptual.find() == ("squeeze", home / served.name)
    served.unlink()  # and what is there is not fetched again
    assert called(capsys, "weights", "squeeze")[0] == 0


def test_progress_is_in_bytes(served):
    seen: list[tuple[int, int]] = []
    weights.fetch("squeeze", lambda done, total, words="": seen.append((done, total)))
    size = served.stat().st_size
    assert seen[-1] == (size, size) and len(seen) > 2 and seen == sorted(seen)


def test_a_damaged_file_in_the_cache_is_fetched_again(served, tmp_path):
    home = tmp_path / "home" / "hub" / "checkpoints"
    home.mkdir(parents=True)
    (home / served.name).write_bytes(b"half of it")
    assert weights.fetch("squeeze").read_bytes() == served.read_bytes()


@pytest.mark.parametrize("wrong", ["changed", "cut off", "gone", "no server"])
def test_what_is_not_the_file_is_one_sentence_and_leaves_nothing(served, tmp_path, capsys, monkeypatch, wrong):
    if wrong == "changed":
        served.write_bytes(served.read_bytes()[:-1] + b"!")
    elif wrong == "cut off":
        served.write_bytes(served.read_bytes()[:1000])
    elif wrong == "gone":
        served.unlink()
    else:
        url = f"http://127.0.0.1:1/{served.name}"
        monkeypatch.setitem(perceptual.WEIGHTS, "squeeze", url)
    code, out, err = called(capsys, "weights")
    assert code == 2 and out == "" and len(err.splitlines()) == 1 and served.name in err
    hashed = wrong in ("changed", "cut off")
    assert ("SHA-256" in err and "expected" in err) is hashed
    assert not (tmp_path / "home").exists()


def test_a_net_that_is_none_gets_a_suggestion(capsys):
    code, _, err = called(capsys, "weights", "squeze")
    assert code == 2 and "'squeeze'?" in err
