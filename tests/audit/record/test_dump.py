"""Dumps of other tools: every layout gives the same setup; what is no dump is refused in one sentence."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.dump import import_dump
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.strict import faults
from dpfl_audit.defenses.presets import PRESETS
from dpfl_audit.defenses.terms import Observer
from safetensors.numpy import save_file

rng = np.random.default_rng(0)


def load(setup, message) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in setup.layout.split(setup.load(message)).items()}


SHAPES = {"weight": (3, 4), "bias": (3,)}
DECLARED = """
num_examples = 5
[mechanism]
clip = 1
noise_std = 0.5
[claim]
epsilon = 8
"""


def tensors(scale: float = 0.5) -> dict[str, np.ndarray]:
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


ROUNDS = [{"broadcast": tensors(), "client-0": tensors(), "client-2": tensors()} for _ in range(2)]


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(arrays, path) if path.suffix == ".safetensors" else np.savez(path, **arrays)


def together(folder: Path, suffix: str) -> dict[str, str]:
    for t, parts in enumerate(ROUNDS):
        write(folder / f"round-{t}{suffix}", {f"{who}/{n}": v for who, own in parts.items() for n, v in own.items()})
    return {"layout": "rounds"}


def apart(folder: Path, suffix: str) -> dict[str, str]:
    for t, parts in enumerate(ROUNDS):
        for who, own in parts.items():
            write(folder / f"round-{t}" / f"{who}{suffix}", own)
    return {"layout": "files"}


def nvflare(folder: Path, suffix: str) -> dict[str, str]:
    """As a filter that saves every task's DXO: rounds counted from 1, sites by number."""
    for t, parts in enumerate(ROUNDS):
        for who, own in parts.items():
            name = "server" if who == "broadcast" else who.replace("client-", "site-")
            write(folder / name / f"round_{t + 1}{suffix}", own)
    return {"layout": "site-{client}/round_{round}.npz", "broadcasts": "server/round_{round}.npz"}


def without_names(folder: Path, suffix: str) -> dict[str, str]:
    """np.savez(file, *arrays), as Flower's ndarrays are often dumped."""
    del suffix
    for t, parts in enumerate(ROUNDS):
        for who, own in parts.items():
            (folder / f"round-{t}").mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"round-{t}" / f"{who}.npz", *own.values())
    return {"layout": "files"}


@pytest.mark.parametrize(
    ("made", "suffix"),
    [
        (together, ".npz"),
        (together, ".safetensors"),
        (apart, ".safetensors"),
        (nvflare, ".npz"),
        (without_names, ".npz"),
    ],
)
def test_every_layout_gives_what_was_dumped(made, suffix, tmp_path):
    options = made(tmp_path / "dump", suffix)
    (tmp_path / "declared.toml").write_text(DECLARED)
    import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "declared.toml", **options)
    setup, auditor = check_setup(tmp_path / "s")
    assert faults(setup, auditor) == [] and setup.manifest.rounds == 2 and setup.manifest.clients == [5, 1, 5]
    for m in setup.messages:
        own = ROUNDS[m.round]["broadcast" if m.sender == "server" else m.sender]
        named = {n.replace("arr_0", "weight").replace("arr_1", "bias"): v for n, v in load(setup, m).items()}
        assert named.keys() == own.keys() and all(np.array_equal(named[n], own[n]) for n in own)
    assert setup.claim.sentence.startswith("ε = 8") and auditor.ledger.participations() == {0: 2, 2: 2}


def test_records_raw_values_and_counts_may_stand_beside_the_tensors(tmp_path):
    own, raw = tensors(), tensors()
    x, y = rng.random((6, 4), dtype=np.float32), np.arange(6) % 3
    beside = {"@num_examples": np.array(6), "@inputs": x, "@targets": y, **{f"@raw/{n}": v for n, v in raw.items()}}
    write(tmp_path / "dump" / "round-0" / "broadcast.npz", tensors())
    write(tmp_path / "dump" / "round-0" / "client-0.npz", {**own, **beside})
    (tmp_path / "d.toml").write_text(
        '[mechanism]\nclip = 1\nnoise_std = 0.5\n[data]\nclasses = 3\ninput_shape = [4]\n[model]\nname = "linear"\n'
    )
    import_dump(tmp_path / "dump", tmp_path / "s", "files", declared=tmp_path / "d.toml")
    setup, auditor = check_setup(tmp_path / "s")
    assert torch.equal(auditor.truth.inputs, torch.from_numpy(x)) and setup.manifest.clients == [6]
    assert setup.module()(torch.rand(2, 4)).shape == (2, 3)
    assert "too few" in next(d.why for d in auditor.declared if d.what == "noise")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: (d / "round-1.npz").write_bytes(b"no zip"), "not a whole .npz"),
        (lambda d: np.savez(d / "round-1.npz", **{"broadcast/weight": np.array([object()])}), "plain arrays"),
        (lambda d: np.savez(d / "round-1.npz", **{"client-0/weight": np.zeros(3)}), "no array is called broadcast"),
        (lambda d: np.savez(d / "round-1.npz", weight=np.zeros(3)), "neither broadcast/TENSOR nor client-NAME"),
        (lambda d: np.savez(d / "round-1.npz", **{"broadcast/weight": np.zeros((3, 4))}), "'bias' is missing"),
    ],
)
def test_damage_is_one_sentence_and_leaves_nothing(spoil, words, tmp_path):
    options = together(tmp_path / "dump", ".npz")
    spoil(tmp_path / "dump")
    (tmp_path / "d.toml").write_text("num_examples = 3")
    with pytest.raises(BadInput, match=words) as caught:
        import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "d.toml", **options)
    assert "\n" not in str(caught.value) and not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "nothing"}, "expected rounds, files, or a pattern"),
        ({"layout": "r{round}/c{client}.npz"}, "--broadcasts"),
        ({"layout": "r{round}.npz"}, "no file is called"),
        ({"layout": "rounds"}, "does not say how many records"),
    ],
)
def test_what_is_missing_is_said(options, words, tmp_path):
    together(tmp_path / "dump", ".npz")
    with pytest.raises(BadInput, match=words):
        import_dump(tmp_path / "dump", tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_no_pickle_is_ever_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "dump").mkdir()
    for name in ("round-0.npz", "round-1.npz"):
        (tmp_path / "dump" / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput):
        import_dump(tmp_path / "dump", tmp_path / "s")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("scheme", ["ldp", "central-gaussian", "anonymous-gossip", "dpsgd", "component"])
def test_what_this_tool_writes_is_strictly_of_the_format(scheme, tmp_path):
    own = {"ldp": {"clip": 1.0, "sigma": 1.0}}.get(scheme, {})
    raw = {
        "data": {"name": "digits", "clients": 5, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "scheme": {"name": scheme, "rounds": 2, **own},
        "capture": {"candidates": 10},
    }
    raw["scheme"] = {**dict(PRESETS[scheme].example), **raw["scheme"]}
    capture.train(build(parse_config(raw), tmp_path), tmp_path / "s")
    assert faults(*check_setup(tmp_path / "s")) == []


def test_strictly_speaking_a_stray_file_is_a_fault(tmp_path):
    options = together(tmp_path / "dump", ".npz")
    (tmp_path / "d.toml").write_text(DECLARED)
    import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "d.toml", **options)
    (tmp_path / "s" / "notes.txt").write_text("mine")
    assert [fault.split()[0] for fault in faults(*check_setup(tmp_path / "s"))] == ["notes.txt", "notes.txt"]


def test_laplace_noise_is_declared_by_its_scale(tmp_path):
    """Two rounds of ε = C/b = 2 each, which add up to 4; another client's vector can point the other way: 8."""
    rng = np.random.default_rng(0)
    for t in range(2):
        (tmp_path / f"dump/r{t}").mkdir(parents=True)
        np.savez(tmp_path / f"dump/r{t}/global.npz", w=rng.normal(size=(30, 40)))
        np.savez(tmp_path / f"dump/r{t}/site0.npz", w=rng.laplace(0, 0.5, (30, 40)))
    (tmp_path / "declared.toml").write_text("num_examples = 9\n[mechanism]\nclip = 1\nnoise_scale = 0.5\n")
    made = import_dump(
        tmp_path / "dump",
        tmp_path / "s",
        "r{round}/site{client}.npz",
        broadcasts="r{round}/global.npz",
        declared=tmp_path / "declared.toml",
    )
    rows = {(r.observer, r.unit, r.adjacency): r.proven for r in table(made).rows}
    assert rows["server", "client", "zero_out"] == pytest.approx(4, rel=1e-3)
    assert rows["server", "client", "replace_one"] == pytest.approx(8, rel=1e-3)


# --- dumps of other tools


def values(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(0, 0.5, (30, 40)).astype("f"), "b": rng.normal(0, 0.5, 30).astype("f")}


HOSPITALS = ("hospital-b", "hospital-a")


def uploads_of(folder: Path) -> dict[tuple[int, str], np.ndarray]:
    setup, _ = check_setup(folder)
    return {(m.round, m.sender): setup.load(m).numpy() for m in setup.messages if m.sender != "server"}


def flat(named: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([value.reshape(-1) for value in named.values()])


@pytest.mark.parametrize(
    ("names", "layout"), [(HOSPITALS, "files"), (HOSPITALS, "own"), (("17146521349845112345", "3"), "rounds")]
)
def test_sites_by_name_and_ids_of_64_bits_are_numbered_in_their_order(names, layout, tmp_path):
    dump, whole = tmp_path / "dump", all(name.isdecimal() for name in names)
    first, second = sorted(names, key=int if whole else None)
    for t in range(2):
        (dump / f"round-{t}").mkdir(parents=True)
        sent = {"broadcast": values(t), **{name: values(10 * t + i + 5) for i, name in enumerate(names)}}
        if layout == "rounds":
            held = {
                f"{who if who == 'broadcast' else f'client-{who}'}/{n}": v for who in sent for n, v in sent[who].items()
            }
            np.savez(dump / f"round-{t}.npz", **held)
        for who, value in sent.items() if layout != "rounds" else ():
            called = who if who == "broadcast" or layout == "own" else f"client-{who}"
            np.savez(dump / f"round-{t}" / f"{called}.npz", **value)
    own = {"layout": "round-{round}/{client}.npz", "broadcasts": "round-{round}/broadcast.npz"}
    (tmp_path / "declared.toml").write_text("num_examples = 9\n")
    asked = own if layout == "own" else {"layout": layout}
    import_dump(dump, tmp_path / "s", declared=tmp_path / "declared.toml", **asked)
    for t in range(2):
        for place, name in enumerate((first, second)):
            assert np.array_equal(
                uploads_of(tmp_path / "s")[t, f"client-{place}"], flat(values(10 * t + names.index(name) + 5))
            )
    said = check_setup(tmp_path / "s")[0].manifest.data.description["read_as"]
    assert f"{first} as 0, {second} as 1" in said


def test_arrays_one_by_one_are_vectors(tmp_path):
    for t in range(2):
        (tmp_path / f"dump/round-{t}").mkdir(parents=True)
        for i, who in enumerate(("broadcast", "client-0", "client-1")):
            np.save(tmp_path / f"dump/round-{t}/{who}.npy", np.full(50, 10.0 * t + i))
    (tmp_path / "declared.toml").write_text("num_examples = 9\n")
    asked = {"layout": "round-{round}/client-{client}.npy", "broadcasts": "round-{round}/broadcast.npy"}
    import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "declared.toml", **asked)
    assert np.array_equal(uploads_of(tmp_path / "s")[1, "client-1"], np.full(50, 12.0))


def test_flat_vectors_of_a_whole_round_are_read_too(tmp_path):
    (tmp_path / "dump").mkdir()
    for t in range(2):
        held = {who: np.full(50, 10.0 * t + i) for i, who in enumerate(("broadcast", "client-0", "client-1"))}
        np.savez(tmp_path / f"dump/round-{t}.npz", **held)
    (tmp_path / "declared.toml").write_text("num_examples = 9\n")
    import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "declared.toml")
    assert np.array_equal(uploads_of(tmp_path / "s")[1, "client-1"], np.full(50, 12.0))


@pytest.mark.parametrize(
    ("kind", "words", "suffix"),
    [
        ("torch", "pickle", ".npz"),
        ("torch", "pickle", ".safetensors"),
        ("pickle", "pickle", ".npz"),
        ("hdf", "HDF5", ".npz"),
        ("gz", "gzip", ".safetensors"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(kind, words, suffix, tmp_path):
    (tmp_path / "dump").mkdir()
    file = tmp_path / "dump" / f"round-0{suffix}"
    if kind == "torch":
        torch.save(dict(tensors()), file)
    else:
        begins = {"pickle": pickle.dumps(tensors()), "hdf": b"\x89HDF\r\n\x1a\n", "gz": gzip.compress(b"x")}
        file.write_bytes(begins[kind])
    with pytest.raises(BadInput, match=words):
        import_dump(tmp_path / "dump", tmp_path / "s")
    with pytest.raises(BadInput, match=words):
        Recorder(tmp_path / "r", {"weight": torch.zeros(2)}, strict=True).broadcast(0, file)


@pytest.mark.parametrize("length", [128, 640, 0x8B1F])  # first bytes of a pickle, and of gzip
def test_safetensors_of_any_length_of_header_are_read(length, tmp_path):
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "w.safetensors").write_bytes(length.to_bytes(8, "little") + header.ljust(length) + bytes(4))
    with Recorder(tmp_path / "r", {"w": torch.zeros(1)}, strict=True) as rec:
        rec.broadcast(0, tmp_path / "w.safetensors")
        rec.upload(0, 0, tmp_path / "w.safetensors", num_examples=1)


@pytest.mark.parametrize(
    ("files", "asked", "words"),
    [
        (
            ["round-0/client-0.pt"],
            {"layout": "round-{round}/client-{client}.pt", "broadcasts": "round-{round}/b.pt"},
            "pickle.*safetensors",
        ),
        (["round-0/client-0.pkl"], {}, "round-0/client-0.pkl is a pickle"),
        (["round-1-weights.npz", "round-2-weights.npz"], {}, "the server's models alone"),
        (["a/b.csv"], {}, "there are a/b.csv; a layout of your own"),
        ([], {}, "it is empty"),
        # what is left out would be missing from ε (an engineer: proven 5.68, true 13.2)
        (["round-0/client-0.npz", "round-0/client-1.pt"], {"layout": "files"}, "client-1.pt.*save its tensors"),
        (
            ["round-0/client-0.npz", "round-0/Client-1.npz"],
            {"layout": "files"},
            "1 of its files are not called.*Client-1.npz",
        ),
    ],
)
def test_the_likeliest_cause_is_named(files, asked, words, tmp_path):
    (tmp_path / "dump").mkdir()
    for name in files:
        (tmp_path / "dump" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dump" / name).write_bytes(b"x")
    with pytest.raises(BadInput, match=words) as error:
        import_dump(tmp_path / "dump", tmp_path / "s", **asked)
    assert "\n" not in str(error.value) and not (tmp_path / "s").exists()


def test_a_networks_tensors_may_stand_in_any_order(tmp_path, monkeypatch):
    """safetensors sorts names, so that a bias comes before its weight."""
    (tmp_path / "nets_in_order.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__(); self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 2)\n"
        "    def forward(self, x): return self.two(self.one(x))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    state = torch.nn.ModuleDict({"one": torch.nn.Linear(4, 3), "two": torch.nn.Linear(3, 2)}).state_dict()
    values = {name: value.numpy() for name, value in sorted(state.items())}
    for who in ("broadcast", "client-0"):
        write(tmp_path / "dump" / "round-0" / f"{who}.npz", values)
    (tmp_path / "d.toml").write_text(
        'num_examples = 5\n[model]\nname = "nets_in_order:Net"\n[data]\ninput_shape = [4]\nclasses = 2\n'
    )
    import_dump(tmp_path / "dump", tmp_path / "s", "files", declared=tmp_path / "d.toml")
    setup = check_setup(tmp_path / "s")[0]
    view = setup.view(Observer("server"), "nets_in_order:Net")
    held = view.layout.split(view.global_model(0))
    assert all(torch.equal(held[f"1.{name}"], value) for name, value in state.items())
    assert list(held) == [name for name, _ in setup.module("nets_in_order:Net").named_parameters()]
