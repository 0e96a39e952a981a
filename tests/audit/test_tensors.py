"""One reader of tensors: the same numbers in every form, or one sentence; and who reads by it."""

from __future__ import annotations

from math import inf

import dpfl_audit
import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.tensors import dense_tensor, real_numbers
from dpfl_audit.audit.worlds.planted import PlantedDataset
from dpfl_audit.audit.worlds.transcript import watched
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of layouts and quantisation
VALUES = torch.tensor([[-1.0, 0.0, 0.25, 2.0], [0.0, 0.5, 0.0, -0.75]])  # every form below holds them exactly
PER_ROW = (torch.full((2,), 0.25), torch.zeros(2, dtype=torch.long), 0, torch.qint8)


class Raising:
    """An object whose way to become an array runs its owner's code, which fails."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("no array today")


FORMS = {
    "coo": lambda: VALUES.to_sparse(),
    "twice in coo": lambda: torch.sparse_coo_tensor([[0, 0, 1], [3, 3, 3]], [1.0, 1.0, 3.0], (2, 4)),
    "csr": lambda: VALUES.to_sparse_csr(),
    "csc": lambda: VALUES.to_sparse_csc(),
    "bsr": lambda: VALUES.to_sparse_bsr((2, 2)),
    "quantised": lambda: torch.quantize_per_tensor(VALUES, 0.25, 0, torch.qint8),
    "quantised by row": lambda: torch.quantize_per_channel(VALUES, *PER_ROW),
    "float8": lambda: VALUES.to(torch.float8_e4m3fn),
    "bfloat16": lambda: VALUES.bfloat16(),
    "negated view": lambda: torch.complex(VALUES, -VALUES).conj().imag,
    "parameter": lambda: nn.Parameter(VALUES),
    "big-endian": lambda: VALUES.numpy().astype(">f4"),
    "longdouble": lambda: VALUES.numpy().astype(np.longdouble),
    "float16": lambda: VALUES.numpy().astype(np.float16),
    "read-only": lambda: np.broadcast_to(VALUES.numpy(), (2, 4)),
    "reversed": lambda: VALUES.numpy()[::-1, ::-1].copy()[::-1, ::-1],
    "lists": lambda: VALUES.tolist(),
}
NONE = {
    "complex": lambda: (VALUES.to(torch.complex64), "real numbers"),
    "sparse complex": lambda: (VALUES.to(torch.complex64).to_sparse(), "real numbers"),
    "numpy's complex": lambda: (VALUES.numpy().astype(complex), "real numbers"),
    "nested": lambda: (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "jagged": lambda: (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested"),
    "meta": lambda: (VALUES.to("meta"), "meta device"),
    "of 4 bits": lambda: (torch.empty(8, dtype=torch.uint4), "uint4"),
    "masked": lambda: (torch.masked.masked_tensor(VALUES, VALUES > 0), "MaskedTensor"),
    "objects": lambda: (np.array([1, None]), "object"),
    "words": lambda: (np.array(["a"]), "expected numbers"),
    "ragged": lambda: ([[1.0], [1.0, 2.0]], "list"),
    "nothing": lambda: (None, "NoneType"),
    "numpy's masked": lambda: (np.ma.masked_greater(VALUES.numpy(), 1), "masked array"),
    "raising": lambda: (Raising(), "Raising"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_numbers_in_every_form(form):
    expected = VALUES if form != "twice in coo" else torch.tensor([[0.0, 0, 0, 2], [0, 0, 0, 3]])
    for dtype in (torch.float32, torch.float64):
        read = real_numbers(FORMS[form](), "it", dtype)
        assert torch.equal(read, expected.to(dtype)) and read.dtype == dtype and not read.requires_grad


@pytest.mark.parametrize("form", NONE)
def test_what_holds_no_such_numbers_is_one_sentence(form):
    value, words = NONE[form]()
    with pytest.raises(ValueError, match=f"^it is [^\n]*{words}"):
        real_numbers(value, "it", torch.float64)


def test_whole_numbers_are_told_apart_or_refused():
    assert real_numbers(torch.tensor([2**24]), "it", torch.float32).item() == 2**24
    assert real_numbers([2**53 - 1], "it", torch.float64).item() == 2**53 - 1
    for value, dtype in ((2**24 + 1, torch.float32), (2**53, torch.float64)):
        with pytest.raises(ValueError, match="tell apart"):
            real_numbers(torch.tensor([value]), "it", dtype)
    assert dense_tensor(np.array([3], dtype=np.int64), "it").dtype == torch.int64  # a class number stays one


def test_what_is_read_is_a_copy():
    value = VALUES.double()
    read = real_numbers(value, "it", torch.float64)
    value.zero_()
    assert torch.equal(read, VALUES.double())


# --- who reads by it


@pytest.mark.parametrize("form", ["coo", "csr", "quantised", "float8", "big-endian"])
def test_a_recorder_keeps_the_values_of_every_form(form, tmp_path):
    start = {"w": torch.zeros(2, 4)}
    with Recorder(tmp_path / "s", start, mechanism=Gaussian(clip=1.0, noise_std=0.5), strict=True) as rec:
        rec.broadcast(0, start)
        rec.upload(0, 0, {"w": FORMS[form]()}, num_examples=5)
    setup, _ = check_setup(tmp_path / "s")
    assert torch.equal(setup.load(next(m for m in setup.messages if m.sender == "client-0")), VALUES.reshape(-1))


@pytest.mark.parametrize("form", ["complex", "nested", "jagged", "meta", "of 4 bits", "masked"])
def test_a_refused_upload_is_kept_in_mind_and_not_by_half(form, tmp_path):
    start = {"w": torch.zeros(2, 4)}
    with Recorder(tmp_path / "s", start, mechanism=Gaussian(clip=1.0, noise_std=0.5), strict=True) as rec:
        rec.broadcast(0, start)
        rec.upload(0, 0, {"w": VALUES}, num_examples=5)
        with pytest.raises(BadInput, match=r"^upload of client 1 in round 0: tensor 'w' is "):
            rec.upload(0, 1, {"w": NONE[form]()[0]}, num_examples=5)
    setup, auditor = check_setup(tmp_path / "s")
    assert [m.sender for m in setup.messages if m.sender != "server"] == ["client-0"]
    assert auditor.ledger.participations() == {0: 1, 1: 1} and table(tmp_path / "s").rows[0].proven == inf


def drawn(world: bool, seed: int) -> Tensor:
    values = np.random.default_rng(seed).normal(size=4)
    values[0] += 3.0 * world
    return torch.tensor(np.round(values, 2), dtype=torch.float32)


def test_a_mechanism_may_give_sparse_or_quantised_vectors():
    asked = {"delta": 1e-5, "draws": 60, "calibration": 20, "gaussian": True}
    plain_one = dpfl_audit.audit_mechanism(lambda w, s: drawn(w, s), **asked)
    sparse = dpfl_audit.audit_mechanism(lambda w, s: drawn(w, s).to_sparse(), **asked)
    steps = dpfl_audit.audit_mechanism(
        lambda w, s: torch.quantize_per_tensor(drawn(w, s), 0.01, 0, torch.qint32), **asked
    )
    assert sparse.counted == plain_one.counted and sparse.if_gaussian == plain_one.if_gaussian
    assert steps.if_gaussian.epsilon == pytest.approx(plain_one.if_gaussian.epsilon, rel=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("none", [False, True])
def test_a_step_is_watched_as_it_was(sparse, none):
    """A sparse gradient is filled with its zeros; one in float64 is kept before whoever zeroes it in place."""
    data = PlantedDataset([(torch.tensor([i]), 0) for i in range(4)], 0, None, False)

    def train(dataset: PlantedDataset) -> None:
        table = nn.Embedding(4, 2, sparse=sparse).double()
        optimiser = torch.optim.SGD(table.parameters(), lr=0.1)
        for i in (1, 2):
            optimiser.zero_grad(set_to_none=none)
            ((row, _),) = dataset.__getitems__([i])
            (i * table(row).sum()).backward()
            optimiser.step()
        optimiser.zero_grad(set_to_none=none)

    seen = watched(train, data, 0).vector.reshape(2, 4, 2)
    expected = torch.zeros(2, 4, 2, dtype=torch.float64)
    expected[0, 1], expected[1, 2] = 1.0, 2.0
    assert torch.equal(seen, expected)


@pytest.fixture
def mesh():
    """Of two processes, of which this is the first; no other is needed, as nothing is gathered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,))
    torch.distributed.destroy_process_group()


def test_a_dtensor_is_read_where_all_of_it_is_here_and_refused_where_a_part_is(mesh):
    from torch.distributed.tensor import DTensor, Replicate, Shard

    whole = DTensor.from_local(VALUES, mesh, [Replicate()], run_check=False)
    assert torch.equal(real_numbers(whole, "it", torch.float32), VALUES)
    part = DTensor.from_local(VALUES, mesh, [Shard(0)], run_check=False)  # of (4, 4)
    with pytest.raises(ValueError, match=r"^it is a DTensor .* has \(2, 4\) of \(4, 4\); give its full_tensor\(\)"):
        dense_tensor(part, "it")


def test_a_network_in_parts_is_refused_when_the_recorder_opens(mesh, tmp_path):
    from torch.distributed.fsdp import fully_shard

    net = nn.Linear(4, 2)
    fully_shard(net, mesh=mesh)
    with pytest.raises(BadInput, match="wrapped by fully_shard, which keeps parts"):
        Recorder(tmp_path / "s", net)
    assert not (tmp_path / "s").exists()
