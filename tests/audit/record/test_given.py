"""Records in any form are the same records: what a setup keeps is, number by number, that of the plain form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

COUNT = 6
GREY = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 6)).astype(np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (COUNT, 8, 6, 3)).astype(np.uint8)
ROWS, LABELS = np.random.default_rng(2).normal(size=(COUNT, 5)).astype(np.float32), np.arange(COUNT) % 3
WORDS = [("cat", "dog", "owl")[label] for label in LABELS]


def kept(folder, net, records, *, data=None, later=None):
    """The truth of a setup of one client, or of two, and how its data was read."""
    with Recorder(folder, net, data=data, strict=True) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, net, COUNT, records=records)
        if later is not None:
            rec.upload(0, 1, net, COUNT, records=later)
    setup, auditor = check_setup(folder)
    return auditor.truth, setup.manifest.data.description.get("read_as", "")


def conv(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(48, 3))


GREYS = {
    "uint8 without a channel": GREY,
    "float 0 to 1 without a channel": GREY / 255,
    "float 0 to 255 with a channel": GREY[:, None].astype(np.float32),
    "a channel behind": GREY[..., None],
    "uint16": (GREY.astype(np.uint32) * 257).astype(np.uint16),
    "torch": torch.from_numpy(GREY)[:, None],
    "half precision": (torch.from_numpy(GREY)[:, None] / 255).double(),
    "pictures": [Image.fromarray(one) for one in GREY],
    "a list of arrays": [*GREY],
}


@pytest.mark.parametrize("form", GREYS)
def test_grey_pictures(form, tmp_path):
    truth, _ = kept(tmp_path / "s", conv(1), (GREYS[form], LABELS))
    assert torch.allclose(truth.inputs, torch.from_numpy(GREY)[:, None] / 255, atol=1e-6)
    assert truth.targets.tolist() == LABELS.tolist()


@pytest.mark.parametrize("form", ["behind", "in front", "pictures", "palette"])
def test_colour_pictures(form, tmp_path):
    pictures = [Image.fromarray(one) for one in COLOUR]
    given = {"behind": COLOUR, "in front": COLOUR.transpose(0, 3, 1, 2), "pictures": pictures}
    if form == "palette":  # whose numbers are no colours
        pictures = [one.convert("P") for one in pictures]
        expected = np.stack([np.asarray(one.convert("RGB")) for one in pictures])
    else:
        expected = COLOUR
    truth, said = kept(tmp_path / "s", conv(3), (given.get(form, pictures), LABELS))
    assert torch.allclose(truth.inputs, torch.from_numpy(expected).permute(0, 3, 1, 2) / 255, atol=1e-6)
    assert ("turned" in said) == (form != "in front") and "by 255" in said


class Records(torch.utils.data.Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        return {"x": ROWS[i], "label": int(LABELS[i])}


PAIRS = {
    "a mapping": {"features": ROWS, "labels": LABELS},
    "a data set of pairs": TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS)),
    "a data set of mappings": Records(),
    "a list of pairs": [(ROWS[i], LABELS[i]) for i in range(COUNT)],
    "lists": (ROWS.tolist(), LABELS.tolist()),
    "whole floats": (ROWS, LABELS.astype(np.float64)),
    "one column of labels": (ROWS, LABELS[:, None]),
    "words": (ROWS, WORDS),
    "words of NumPy": (ROWS, np.array(WORDS)),
    "a list of pairs with words": [(ROWS[i].tolist(), WORDS[i]) for i in range(COUNT)],
}


@pytest.mark.parametrize("form", PAIRS)
def test_rows_and_labels(form, tmp_path):
    truth, said = kept(tmp_path / "s", nn.Linear(5, 3), PAIRS[form])
    assert torch.allclose(truth.inputs, torch.from_numpy(ROWS)) and truth.targets.tolist() == LABELS.tolist()
    assert "cat" not in said and ("as classes" in said) == ("words" in form)


def test_two_records_are_no_pair_of_arrays_and_bits_are_two_classes(tmp_path):
    truth, _ = kept(tmp_path / "s", nn.Linear(5, 2), (ROWS, LABELS == 1))
    assert truth.targets.tolist() == (LABELS == 1).astype(int).tolist()
    with Recorder(tmp_path / "t", nn.Linear(5, 3), strict=True) as rec:
        rec.broadcast(0, nn.Linear(5, 3))
        rec.upload(0, 0, nn.Linear(5, 3), 2, records=[(ROWS[0], 2), (ROWS[1], 0)])
    assert check_setup(tmp_path / "t")[1].truth.targets.tolist() == [2, 0]


def test_the_owner_says_the_order_of_words(tmp_path):
    truth, _ = kept(tmp_path / "s", nn.Linear(5, 3), (ROWS, WORDS), data={"labels": ["owl", "dog", "cat"]})
    assert truth.targets.tolist() == (2 - LABELS).tolist()
    with pytest.raises(BadInput, match="targets are 3 words, and there are 4 classes"):
        kept(tmp_path / "t", nn.Linear(5, 4), (ROWS, WORDS))
    with pytest.raises(BadInput, match="'owl' is none of data"):
        kept(tmp_path / "u", nn.Linear(5, 2), (ROWS, WORDS), data={"labels": ["cat", "dog"]})


def test_a_network_decides_where_values_do_not(tmp_path):
    """Rows of 8 × 6 from 0 to 1: pictures to a convolution, times to a sequence's layer."""

    class Times(nn.Module):
        def __init__(self):
            super().__init__()
            self.over, self.last = nn.Conv1d(8, 2, 3), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.over(x).flatten(1)) if x.dim() == 3 else self.over(x.reshape(-1)).sum()

    assert kept(tmp_path / "s", conv(1), (GREY / 255, LABELS))[0].inputs.shape == (COUNT, 1, 8, 6)
    with Recorder(tmp_path / "t", Times().state_dict(), data={"input_shape": [8, 6], "classes": 3}, strict=True) as rec:
        rec.broadcast(0, Times())
        rec.upload(0, 0, Times(), COUNT, records=(GREY / 255, LABELS))
    assert check_setup(tmp_path / "t")[1].truth.inputs.shape == (COUNT, 8, 6)


def test_a_later_client_is_read_as_the_first(tmp_path):
    """One with dark images alone does not decide that its pixels are from 0 to 1."""
    dark = np.zeros_like(GREY, dtype=np.float32)
    dark[:, 0, 0] = 1
    truth, _ = kept(tmp_path / "s", conv(1), (GREY.astype(np.float32), LABELS), later=(dark, LABELS))
    assert float(truth.inputs[COUNT:].max()) == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({"a": ROWS, "b": ROWS}, "a mapping of 'a', 'b'; expected inputs and one of label"),
        ([Image.fromarray(GREY[0]), Image.fromarray(GREY[1][:5])], "several shapes"),
        ("rows", "expected"),
        ((ROWS, ["cat", 3] * 3), "targets"),
        ((np.array([["a"] * 5] * COUNT), LABELS), "expected numbers"),
    ],
)
def test_what_are_no_records_is_one_sentence(records, words, tmp_path):
    if isinstance(records, list):
        records = (records, LABELS[:2])
    with pytest.raises(BadInput, match=words) as error:
        kept(tmp_path / "s", nn.Linear(5, 3), records)
    assert "\n" not in str(error.value)
