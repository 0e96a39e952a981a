"""Data sets: disjoint splits, published bytes, honest digests, and one sentence where something is wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from dpfl_audit.defenses.data import BUNDLED, NAMES, load, photos, tabular, torchvision_sets
from dpfl_audit.defenses.data.dataset import digest, make, standardised, statistics
from torchvision.transforms.functional import to_tensor

SPLITS = ("train", "test", "auxiliary")


# ---- photos


@pytest.fixture(scope="module", params=[(150, 300), (10, 300)], ids=lambda p: f"{p[0]} classes")
def cut_photos(request):
    return load("photos", classes=request.param[0], samples=request.param[1])


def painted(places, grow=0):
    """Which pixels of each photograph the patches at `places` cover, each widened by `grow` pixels on every side."""
    masks = [np.zeros(image.shape[:2], dtype=bool) for image in photos.photographs()]
    for photo, top, left in places.tolist():
        masks[photo][max(0, top - grow) : top + 32 + grow, max(0, left - grow) : left + 32 + grow] = True
    return masks


@pytest.mark.few(1)
def test_photos_share_no_pixel_between_splits_and_keep_a_guard_of_32(cut_photos):
    for a, b in (("train", "test"), ("train", "auxiliary"), ("test", "auxiliary")):
        near, other = painted(cut_photos.extra[a], grow=32), painted(cut_photos.extra[b])
        assert not any((x & y).any() for x, y in zip(near, other))


@pytest.mark.full
def test_photos_share_no_pixel_between_classes(cut_photos):
    owner = [np.full(image.shape[:2], -1) for image in photos.photographs()]
    for label, (photo, top, left) in zip(cut_photos.targets.tolist(), cut_photos.extra["train"].tolist()):
        window = owner[photo][top : top + 32, left : left + 32]
        assert ((window == -1) | (window == label)).all()
        window[:] = label


def test_every_patch_lies_in_a_strip_of_its_class_and_split():
    data = load("photos", classes=150, samples=900)
    regions = photos.layout(150)
    for number, (split, targets) in enumerate(zip(SPLITS, (data.targets, data.test_targets, data.auxiliary_targets))):
        for label, (photo, top, left) in zip(targets.tolist(), data.extra[split].tolist()):
            assert regions[label].photo == photo
            strips = regions[label].strips[number]
            assert any(a <= top <= c - 32 and b <= left <= d - 32 for a, b, c, d in strips)


@pytest.mark.parametrize(("samples", "others"), [(4, 20), (30, 30)])
def test_photos_to_test_and_to_help_are_as_many_as_to_train_but_ten_a_class(samples, others):
    data = load("photos", classes=2, samples=samples)
    assert (len(data.inputs), len(data.test_inputs), len(data.auxiliary_inputs)) == (samples, others, others)


def test_photos_are_the_pixels_their_coordinates_say(cut_photos):
    assert list(cut_photos.extra) == list(SPLITS)
    for inputs, split in zip((cut_photos.inputs, cut_photos.test_inputs, cut_photos.auxiliary_inputs), SPLITS):
        photo, top, left = cut_photos.extra[split][7].tolist()
        original = photos.photographs()[photo][top : top + 32, left : left + 32]
        assert torch.equal(inputs[7], torch.tensor(original).permute(2, 0, 1) / 255)
    assert torch.equal(photos.cut(cut_photos.extra["train"]), cut_photos.inputs)


def test_photos_are_balanced_and_no_patch_is_flat(cut_photos):
    counts = torch.bincount(cut_photos.targets, minlength=cut_photos.classes)
    assert counts.max() - counts.min() <= 1 and counts.sum() == len(cut_photos.inputs)
    for inputs in (cut_photos.inputs, cut_photos.test_inputs, cut_photos.auxiliary_inputs):
        assert inputs.var((2, 3), correction=0).mean(1).sqrt().min() >= photos.FLOOR - 1e-4


def test_photos_overlap_is_what_a_slow_count_finds(cut_photos):
    places = cut_photos.extra["train"]
    some = places[:40]
    pixels = [{(p, r, c) for r in range(t, t + 32) for c in range(l, l + 32)} for p, t, l in some.tolist()]
    shared, nearest = [], []
    for k, mine in enumerate(pixels):
        others = [mine & theirs for j, theirs in enumerate(pixels) if j != k]
        shared.append(len(set().union(*others)) / 1024)
        nearest.append(max(map(len, others)) / 1024)
    found = photos.overlap(some)
    assert found["shared_pixels"] == pytest.approx(np.mean(shared), abs=1e-4)
    assert found["shared_with_nearest"] == pytest.approx(np.mean(nearest), abs=1e-4)
    assert found["patches"] == sum(s > 0 for s in shared)
    assert cut_photos.description["overlap"]["train"] == photos.overlap(places)


def test_a_hundred_regions_with_one_image_each_do_not_overlap_and_gray_is_far_from_them():
    data = load("photos", classes=100, samples=100)
    assert data.targets.sort().values.tolist() == list(range(100))
    assert data.description["overlap"]["train"]["patches"] == 0
    gray = -10 * (data.inputs - 0.5).square().mean((1, 2, 3)).log10()
    assert 10.5 < gray.mean() < 13.5


def test_photos_come_from_their_seed_alone():
    first, again, other = (load("photos", classes=4, samples=60, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs) and first.description == again.description
    assert not torch.equal(first.inputs, other.inputs)
    json.dumps(first.description)


@pytest.mark.full
def test_photos_fill_their_capacity_and_say_it_when_asked_for_more():
    room = photos.capacity(10)
    full = load(
        "photos", classes=10, samples=room["train"], test_samples=room["test"], auxiliary_samples=room["auxiliary"]
    )
    assert full.description["sizes"] == {
        "training": room["train"],
        "test": room["test"],
        "auxiliary": room["auxiliary"],
    }
    assert min(full.description["stride"].values()) >= 8
    for asked in ({"samples": room["train"] + 1}, {"samples": 10, "test_samples": room["test"] + 1}, {"samples": 0}):
        with pytest.raises(ValueError, match=r"between 1 and \d+ fit"):
            load("photos", classes=10, **asked)
    with pytest.raises(ValueError, match="at most") as error:
        photos.layout(1000)
    most = int(str(error.value).split("at most ")[1].split()[0])
    assert most >= 100 and len(photos.layout(most)) == most
    with pytest.raises(ValueError, match="at least 2"):
        load("photos", classes=1)


# ---- what every set promises


@pytest.mark.parametrize(
    ("name", "shape", "sizes", "classes"),
    [("digits", (1, 8, 8), (1200, 300, 297), 10), ("breast_cancer", (30,), (400, 100, 69), 2)],
)
def test_sets_inside_scikit_learn(name, shape, sizes, classes):
    data = load(name, seed=3)
    assert data.input_shape == shape and data.classes == classes
    assert (len(data.inputs), len(data.test_inputs), len(data.auxiliary_inputs)) == sizes
    rows = torch.cat([data.inputs, data.test_inputs, data.auxiliary_inputs]).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)  # neither set holds a row twice, so the splits are disjoint
    assert torch.equal(data.inputs, load(name, seed=3).inputs)
    assert not torch.equal(data.inputs, load(name, seed=4).inputs)


def test_statistics_are_numpys():
    x = torch.rand(50, 3, 4, 5) * torch.tensor([1.0, 0.1, 0.0]).view(3, 1, 1)
    mean, std = statistics(x)
    array = x.double().numpy()
    assert mean == pytest.approx(array.mean((0, 2, 3)))
    assert std == pytest.approx([*array.std((0, 2, 3))[:2], 1.0])


def test_the_digest_sees_values_shapes_and_types():
    x = torch.arange(6.0)
    assert len({digest(x), digest(x.view(2, 3)), digest(x.double()), digest(x + 1)}) == 4
    assert digest(x) == digest(x.clone())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("photo", {}, "unknown data set 'photo'"),
        ("digits", {"classes": 7}, "has 10 classes"),
        ("digits", {"colour": 1}, "option colour"),
        *((name, {}, "root") for name in NAMES if name not in BUNDLED),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(name, options, words):
    with pytest.raises(ValueError, match=words) as error:
        load(name, **options)
    assert "\n" not in str(error.value)


# ---- mean and std


def random_split(n, shape, seed):
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(n, *shape, generator=rng), torch.randint(2, (n,), generator=rng)


IMAGE, ROW = (1, 2, 2), (3,)


@pytest.mark.parametrize(
    ("shape", "auxiliary", "published", "source"),
    [
        (ROW, 40, ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), "published"),
        (ROW, 40, None, "auxiliary"),
        (ROW, 9, None, "training"),
        (IMAGE, 10, None, "auxiliary"),
        (IMAGE, 9, None, "published"),
    ],
)
def test_mean_and_std_are_the_first_that_there_are(shape, auxiliary, published, source):
    """Published ones, then those of ten auxiliary records or more, then pixels' range; private records only where
    nothing else is left, and then it is said.
    """
    train, test, spare = (random_split(n, shape, n) for n in (30, 5, auxiliary))
    data = make("some", train, test, spare, 2, {}, published=published)
    expected = {
        "published": published or ((0.5,), (0.25,)),
        "auxiliary": statistics(spare[0]),
        "training": statistics(train[0]),
    }
    assert data.statistics_of == data.description["statistics_of"] == source
    assert (data.mean, data.std) == expected[source]
    other = make("some", random_split(30, shape, 99), test, spare, 2, {}, published=published)
    assert ((other.mean, other.std) == (data.mean, data.std)) == (source != "training")


def test_who_asks_gets_what_he_asks_for():
    train, test, spare = (random_split(n, IMAGE, n) for n in (30, 5, 40))
    data = make("some", train, test, spare, 2, {})
    for source, constants in (
        ("none", ((0.0,), (1.0,))),
        ("published", ((0.5,), (0.25,))),
        ("training", statistics(train[0])),
        ("auxiliary", statistics(spare[0])),
    ):
        chosen = standardised(data, source)
        assert (chosen.mean, chosen.std) == constants and chosen.statistics_of == source
    assert standardised(data, None, [0.1], [0.2]).statistics_of == "config"
    alone = make("some", random_split(30, ROW, 0), random_split(2, ROW, 1), random_split(1, ROW, 2), 2, {})
    for source, words in (("auxiliary", "1 auxiliary records, and two"), ("published", "nothing is published")):
        with pytest.raises(ValueError, match=words):
            standardised(alone, source)


@pytest.mark.parametrize("name", ["photos", "digits", "breast_cancer"])
def test_bundled_sets_take_them_from_auxiliary_records(name):
    data = load(name)
    assert data.statistics_of == "auxiliary" and (data.mean, data.std) == statistics(data.auxiliary_inputs)


# ---- the user's own arrays


def archive(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


GOOD = {"inputs": np.linspace(0, 1, 240).reshape(20, 3, 2, 2), "targets": np.arange(20) % 4}


def test_npz_without_splits_holds_out_a_tenth_each(tmp_path):
    data = load("npz", root=archive(tmp_path / "a.npz", **GOOD))
    assert data.classes == 4 and (len(data.inputs), len(data.test_inputs), len(data.auxiliary_inputs)) == (16, 2, 2)
    rows = torch.cat([data.inputs, data.test_inputs, data.auxiliary_inputs]).flatten(1)
    assert torch.equal(rows[rows[:, 0].argsort()], torch.tensor(GOOD["inputs"], dtype=torch.float32).flatten(1))


def test_npz_keeps_given_splits_of_any_type(tmp_path):
    arrays = {
        "inputs": GOOD["inputs"].astype(">f4"),
        "targets": GOOD["targets"].astype(">u2"),
        "test_inputs": GOOD["inputs"][:3],
        "test_targets": np.array([0, 5, 1]),
    }
    data = load("npz", root=archive(tmp_path / "a.npz", **arrays))
    assert (
        data.classes == 6
        and len(data.inputs) == 20
        and len(data.auxiliary_inputs) == 0
        and data.test_targets.tolist() == [0, 5, 1]
    )
    assert torch.equal(data.targets, torch.tensor(GOOD["targets"]))


PIXELS = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), np.uint8)  # photographs as most programs hold them


def test_npz_divides_pixels_of_uint8_and_turns_channels_to_the_front(tmp_path):
    """As torchvision.transforms.functional.to_tensor does."""
    test = {"test_inputs": PIXELS[:3].astype(np.float32) / 255, "test_targets": np.arange(3)}
    data = load("npz", root=archive(tmp_path / "a.npz", inputs=PIXELS, targets=np.arange(20) % 4, **test), classes=4)
    assert data.input_shape == (3, 5, 4)
    assert torch.equal(data.inputs, torch.stack([to_tensor(image) for image in PIXELS]))
    assert torch.equal(data.test_inputs, data.inputs[:3])
    assert "255; height-width-channel" in data.description["read_as"]


def test_npz_says_nothing_where_nothing_was_changed(tmp_path):
    data = load("npz", root=archive(tmp_path / "a.npz", **GOOD))
    assert "read_as" not in data.description
    table = load("npz", root=archive(tmp_path / "t.npz", inputs=PIXELS[:, :, 0, 0], targets=np.arange(20) % 4))
    assert "read_as" not in table.description and table.inputs.max() > 1  # whole numbers of a table are no pixels
    root = archive(tmp_path / "b.npz", inputs=PIXELS.transpose(0, 3, 1, 2) % 2, targets=np.ones(20) / 2)
    black = load("npz", root=root, pixels="as they are")
    assert "read_as" not in black.description and black.inputs.unique().tolist() == [0, 1]


@pytest.mark.parametrize("held", [(), ("test", "auxiliary")])
def test_no_record_decides_how_npz_reads_the_others(tmp_path, held):
    """Replacing one training record changes this one alone; black and white images, one pixel of which becomes 2."""
    images = PIXELS[..., 0] % 2
    others = {f"{split}_inputs": images[:5].copy() for split in held}
    others |= {f"{split}_targets": np.arange(5) % 2 for split in held}
    read = []
    for pixel in (0, 2):
        images[7, 0, 0] = pixel
        root = archive(tmp_path / f"{pixel}.npz", inputs=images, targets=np.arange(20) % 2, **others)
        read.append(load("npz", root=root))
    assert read[0].description["read_as"] == read[1].description["read_as"]
    assert read[0].input_shape == read[1].input_shape == (1, 5, 4)
    rows = [torch.cat([d.inputs, d.test_inputs, d.auxiliary_inputs]) for d in read]
    assert (rows[0] != rows[1]).flatten(1).any(1).sum() == 1


GREY = np.random.default_rng(1).integers(0, 256, (40, 8, 6))
READINGS = {  # what the same pictures are stored as -> what the description says of it
    "float 0 to 1": (GREY / 255, "grey images given one channel"),
    "float 0 to 255": (GREY.astype(np.float32), "float32 pixels divided by 255; grey"),
    "whole numbers": (GREY, "int64 pixels divided by 255; grey"),
    "8 bits": (GREY.astype(np.uint8), "uint8 pixels divided by 255; grey"),
    "16 bits": ((GREY * 257).astype(np.uint16), "uint16 pixels divided by 65535; grey"),
    "one channel behind": (GREY[..., None] / 255, "height-width-channel order"),
    "one channel in front": (GREY[:, None].astype(np.uint8), "uint8 pixels divided by 255"),
}


@pytest.mark.parametrize("stored", READINGS)
def test_npz_reads_the_same_pictures_however_they_are_stored(stored, tmp_path):
    images, said = READINGS[stored]
    data = load("npz", root=archive(tmp_path / "a.npz", inputs=images, targets=np.arange(40) % 2))
    plain = load("npz", root=archive(tmp_path / "b.npz", inputs=GREY[:, None] / 255, targets=np.arange(40) % 2))
    assert data.input_shape == (1, 8, 6) and torch.allclose(data.inputs, plain.inputs, atol=1e-6)
    assert said in data.description["read_as"]


def test_npz_leaves_time_series_as_they_are_and_says_so(tmp_path):
    series = np.random.default_rng(0).normal(size=(40, 8, 6))
    data = load("npz", root=archive(tmp_path / "a.npz", inputs=series, targets=np.arange(40) % 2))
    assert data.input_shape == (8, 6) and "no pixels" in data.description["read_as"]
    unit = archive(tmp_path / "b.npz", inputs=GREY / 255, targets=np.arange(40) % 2)
    assert load("npz", root=unit, pixels="none").input_shape == (8, 6)
    white = archive(tmp_path / "c.npz", inputs=GREY // 16, targets=np.arange(40) % 2)
    assert float(load("npz", root=white, pixels=15).inputs.max()) == 1


def test_npz_asks_where_some_images_alone_go_beyond_1(tmp_path):
    """One image of 0 to 255 among others of 0 to 1 decides nothing of these."""
    images = GREY / 255
    images[7] *= 255
    root = archive(tmp_path / "a.npz", inputs=images, targets=np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"go beyond 1.*pixels = 255"):
        load("npz", root=root)


def test_npz_takes_words_and_bits_for_classes(tmp_path):
    inputs = np.random.default_rng(0).normal(size=(60, 4))
    words = np.array(["well", "ill", "dead"])[np.arange(60) % 3]
    data = load("npz", root=archive(tmp_path / "a.npz", inputs=inputs, targets=words))
    assert data.description["labels"] == ["dead", "ill", "well"] and data.classes == 3
    bits = load("npz", root=archive(tmp_path / "b.npz", inputs=inputs, targets=np.arange(60) % 2 == 0))
    assert bits.classes == 2 and set(bits.targets.tolist()) == {0, 1}
    words[0] = "rare"
    held = {"test_inputs": inputs[:9], "test_targets": words[3:12]}
    with pytest.raises(ValueError, match="everybody sees which classes"):
        load("npz", root=archive(tmp_path / "c.npz", inputs=inputs, targets=words, **held))


def test_npz_refuses_another_way_to_read_pixels(tmp_path):
    with pytest.raises(ValueError, match="known are 'as they are', 'none' and what white is"):
        load("npz", root=archive(tmp_path / "a.npz", inputs=PIXELS, targets=np.arange(20) % 4), pixels="raw")


@pytest.mark.parametrize(("order", "shape"), [("chw", (3, 4, 1)), ("hwc", (1, 3, 4))])
def test_npz_asks_for_the_order_where_the_shape_shows_both(tmp_path, order, shape):
    images = PIXELS[:, :3, :, :1]
    root = archive(tmp_path / "a.npz", inputs=images, targets=np.arange(20) % 4)
    with pytest.raises(ValueError, match=r"\(3, 4, 1\), which can be channel-height-width or height-width-channel"):
        load("npz", root=root)
    data = load("npz", root=root, order=order)
    assert data.input_shape == shape and ("read_as" in data.description)
    assert ("turned" in data.description["read_as"]) == (order == "hwc")


def test_npz_asks_about_axes_it_cannot_tell(tmp_path):
    four = np.repeat(GREY[..., None].astype(np.uint8), 4, axis=3)
    root = archive(tmp_path / "c.npz", inputs=four, targets=np.arange(40) % 2)
    with pytest.raises(ValueError, match='say their order by order = "chw" or "hwc"'):
        load("npz", root=root)
    assert load("npz", root=root, order="hwc").input_shape == (4, 8, 6)


def test_npz_takes_images_of_one_pixel_and_refuses_other_orders(tmp_path):
    one = archive(tmp_path / "a.npz", inputs=PIXELS[:, :1, :1, :1], targets=np.arange(20) % 4)
    assert load("npz", root=one).input_shape == (1, 1, 1)
    with pytest.raises(ValueError, match="known are chw, hwc"):
        load("npz", root=one, order="whc")
    table = archive(tmp_path / "t.npz", inputs=PIXELS[:, 0, 0], targets=np.arange(20) % 4)
    with pytest.raises(ValueError, match="images of four axes"):
        load("npz", root=table, order="hwc")


LOADED = """
import sys
from pathlib import Path
from dpfl_audit.defenses.data import load

def resident(which):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if which in line)

load("npz", root=sys.argv[1])  # what is imported and allocated once
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
data = load("npz", root=sys.argv[2])
print((resident("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of resident memory from /proc")
@pytest.mark.full
def test_npz_takes_four_times_its_arrays_at_most(tmp_path):
    """The archive's array, the splits of it, and a piece; no float64 copy of everything, twice the size each.
    (60,000 rows take 2.2 times theirs.)
    """
    inputs = np.random.default_rng(0).random((30_000, 784), dtype=np.float32)
    small = archive(tmp_path / "small.npz", inputs=inputs[:100], targets=np.arange(100) % 10)
    large = archive(tmp_path / "large.npz", inputs=inputs, targets=np.arange(30_000) % 10)
    out = subprocess.run([sys.executable, "-c", LOADED, small, large], capture_output=True, text=True, check=True)
    assert int(out.stdout) <= 4 * inputs.nbytes


def test_statistics_of_many_pieces_are_those_of_one(monkeypatch):
    x = torch.rand(50, 3, 4, 5)
    whole = statistics(x)
    monkeypatch.setattr("dpfl_audit.defenses.data.dataset.CHUNK_NUMBERS", 7 * 60)
    for a, b in zip(statistics(x), whole):
        assert a == pytest.approx(b, rel=1e-14)


@pytest.mark.parametrize(
    ("arrays", "classes", "words"),
    [
        ({"inputs": GOOD["inputs"] * 2 - 1}, None, r"\[0, 1\]"),
        ({"inputs": np.where(GOOD["inputs"] > 0.5, np.nan, 0)}, None, "NaN"),
        ({"targets": np.arange(19)}, None, "targets"),
        ({"targets": GOOD["targets"] - 1}, None, "class numbers from -1 to 2; they begin at 0"),
        ({}, 3, "class numbers"),
        ({"targets": GOOD["targets"] + 0.5}, 5, "whole numbers"),
        ({"inputs": np.zeros(20)}, None, "expected"),
        ({"targets": np.array([{}] * 20)}, None, "plain arrays"),
        ({"inputs": np.array(["a"] * 20)}, None, "numbers are needed"),
        ({"test_inputs": GOOD["inputs"]}, None, "in pairs"),
    ],
)
def test_npz_refuses_what_is_wrong(tmp_path, arrays, classes, words):
    with pytest.raises(ValueError, match=words):
        load("npz", root=archive(tmp_path / "a.npz", **{**GOOD, **arrays}), classes=classes)


def test_npz_refuses_other_files(tmp_path):
    np.save(tmp_path / "one.npy", GOOD["inputs"])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    archive(tmp_path / "none.npz", x=np.zeros(3))
    whole = (tmp_path / "none.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name, words in (
        ("one.npy", "single array"),
        ("text.npz", r"is not an .npz of plain arrays \(it is no NumPy file\)"),  # which NumPy takes for a pickle
        ("empty.npz", "plain arrays"),
        ("none.npz", "no arrays inputs"),
        ("cut.npz", "plain arrays"),
        ("gone.npz", "no archive"),
        (".", "plain arrays"),
    ):
        with pytest.raises(ValueError, match=words):
            load("npz", root=str(tmp_path / name))


# ---- images in torchvision's formats


def idx(array):
    return (
        bytes((0, 0, 8, array.ndim))
        + b"".join(n.to_bytes(4, "big") for n in array.shape)
        + array.astype(np.uint8).tobytes()
    )


def write_mnist(root, folder="MNIST"):
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    images = {part: np.random.default_rng(n).integers(0, 256, (n, 28, 28)) for part, n in (("train", 30), ("t10k", 10))}
    for part, pixels in images.items():
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(len(pixels)) % 10))
    return raw, images


def test_mnist_files_give_their_pixels(tmp_path):
    _, images = write_mnist(tmp_path)
    data = load("mnist", root=str(tmp_path))
    assert (
        torch.equal(data.inputs[:, 0], torch.tensor(images["train"] / 255, dtype=torch.float32))
        and data.targets.tolist() == [*range(10)] * 3
    )
    assert (len(data.test_inputs), len(data.auxiliary_inputs)) == (8, 2)
    assert sorted(torch.cat([data.test_targets, data.auxiliary_targets]).tolist()) == list(range(10))


def test_damaged_mnist_files_are_refused(tmp_path):
    raw, _ = write_mnist(tmp_path)
    images = raw / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    for content in (whole[:-1], whole[:6], b"", b"\0\0\x09\x03" + whole[4:]):
        images.write_bytes(content)
        with pytest.raises(ValueError, match="not a whole IDX file"):
            load("mnist", root=str(tmp_path))
    images.unlink()
    with pytest.raises(ValueError, match="missing"):
        load("mnist", root=str(tmp_path))
    packed = raw / "train-images-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(whole))  # a whole file, but not the published one
    with pytest.raises(ValueError, match="MD5"):
        load("mnist", root=str(tmp_path))


def test_broken_archives_are_refused_in_one_sentence(tmp_path):
    content = bytearray(gzip.compress(bytes(range(256)) * 40))
    content[20] ^= 255
    for end, bad in ((".gz", bytes(content)), (".gz", b"no"), (".xz", lzma.compress(b"abc" * 99)[:-9])):
        (tmp_path / f"x{end}").write_bytes(bad)
        with pytest.raises(ValueError, match="cannot be unpacked"):
            torchvision_sets._unpacked(tmp_path, "x")
        (tmp_path / f"x{end}").unlink()


def test_fashion_mnist_is_the_published_one(shared_data):
    root = shared_data("FashionMNIST").parent
    data = load("fashion_mnist", root=str(root))
    assert data.inputs.shape == (60000, 1, 28, 28)
    assert (len(data.test_inputs), len(data.auxiliary_inputs)) == (8000, 2000)
    assert torch.bincount(data.targets).tolist() == [6000] * 10
    assert (data.mean, data.std) == ((0.2860,), (0.3530,)) and data.statistics_of == "published"
    for told, own in zip((data.mean, data.std), statistics(data.inputs[::10])):
        assert told == pytest.approx(own, rel=0.01)


@pytest.mark.full
def test_cifar_batches_are_torchvisions(shared_data, tmp_path):
    import torchvision

    home = shared_data("cifar-10-batches-py")
    images, labels = torchvision_sets._batches(home, torchvision.datasets.CIFAR10.test_list, b"labels")
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    shutil.copyfile(home / "batches.meta", folder / "batches.meta")
    (folder / "test_batch").write_bytes(lzma.decompress((home / "test_batch.xz").read_bytes()))
    oracle = type("TestOnly", (torchvision.datasets.CIFAR10,), {"train_list": []})(str(tmp_path), train=False)
    assert torch.equal((images * 255).round().byte().permute(0, 2, 3, 1), torch.tensor(oracle.data))
    assert labels.tolist() == oracle.targets
    published = load("cifar10", root=str(home.parent))
    for told, own in zip((published.mean, published.std), statistics(images)):
        assert told == pytest.approx(own, rel=0.02)
    with pytest.raises(ValueError, match="holds none of"):
        load("cifar10", root=str(tmp_path))


def write_cifar(root, monkeypatch, content):
    """A root whose published MD5 is that of `content`."""
    import torchvision.datasets as sets

    folder = root / "cifar-10-batches-py"
    folder.mkdir(exist_ok=True)
    (folder / "data_batch_3").write_bytes(content)
    (folder / "test_batch.gz").write_bytes(gzip.compress(content))
    md5 = hashlib.md5(content).hexdigest()
    monkeypatch.setattr(sets.CIFAR10, "train_list", [["data_batch_1", "0" * 32], ["data_batch_3", md5]])
    monkeypatch.setattr(sets.CIFAR10, "test_list", [["test_batch", md5]])


class Evil:
    def __reduce__(self):
        return (io.open, ("stolen", "w"))


def test_a_folder_with_some_batches_works_and_only_arrays_come_out(tmp_path, monkeypatch):
    batch = {b"data": np.arange(5 * 3072, dtype=np.uint8).reshape(5, 3072), b"labels": [0, 1, 2, 3, 9]}
    write_cifar(tmp_path, monkeypatch, pickle.dumps(batch, protocol=2))
    data = load("cifar10", root=str(tmp_path))
    assert (
        data.inputs.shape == (5, 3, 32, 32)
        and data.targets.tolist() == [0, 1, 2, 3, 9]
        and data.inputs[0, 0, 0, 31].item() == pytest.approx(31 / 255)
    )
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, monkeypatch, pickle.dumps({b"data": Evil()}, protocol=2))
    with pytest.raises(ValueError, match="has no need of"):
        load("cifar10", root=str(tmp_path))
    assert not (tmp_path / "stolen").exists()
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"another")
    with pytest.raises(ValueError, match="MD5"):
        load("cifar10", root=str(tmp_path))


# ---- femnist


def leaf(path, users):
    path.mkdir(parents=True)
    data = {user: {"x": [[value] * 784 for value in xs], "y": list(range(len(xs)))} for user, xs in users.items()}
    (path / "all.json").write_text(
        json.dumps({"users": list(users), "num_samples": [len(x) for x in users.values()], "user_data": data})
    )


def test_leaf_files_keep_their_writers(tmp_path):
    leaf(tmp_path / "train", {"f01": [0.0, 0.1], "f02": [0.2, 0.3, 0.4]})
    leaf(tmp_path / "test", {"f01": [0.5] * 4, "f03": [1] * 6})  # whole numbers too
    data = load("femnist", root=str(tmp_path))
    assert (len(data.test_inputs), len(data.auxiliary_inputs)) == (8, 2) and data.test_inputs.dtype == torch.float32
    assert data.input_shape == (1, 28, 28) and data.classes == 62 and data.groups.tolist() == [0, 0, 1, 1, 1]
    assert data.inputs[:, 0, 0, 0].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    (tmp_path / "train" / "all.json").write_text('{"users": ["f01"]}')
    with pytest.raises(ValueError, match="not a LEAF file"):
        load("femnist", root=str(tmp_path))


def test_emnist_images_are_turned_upright(tmp_path):
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (10, 28, 28))
    for part in ("train", "test"):
        (raw / f"emnist-byclass-{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (raw / f"emnist-byclass-{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(10) + 50))
    data = load("femnist", root=str(tmp_path))
    assert data.groups is None and torch.equal(data.inputs[3, 0], torch.tensor(pixels[3].T / 255, dtype=torch.float32))
    with pytest.raises(ValueError, match="neither LEAF"):
        load("femnist", root=str(raw))


# ---- tables


@pytest.mark.full
def test_adult_is_standardised_by_its_auxiliary_rows_and_both_formats_agree(shared_data, tmp_path):
    data = load("adult", root=str(shared_data("adult").parent))
    assert data.inputs.shape[0] == 32561 and len(data.test_inputs) + len(data.auxiliary_inputs) == 16281
    # 7,841 of 32,561 (UCI's adult.names: 24.78 % without missing values).
    assert 0.2408 < data.targets.double().mean() < 0.2409
    numbers = data.auxiliary_inputs[:, [0]]
    assert abs(numbers.mean()) < 1e-5 and abs(numbers.std(correction=0) - 1) < 1e-5
    assert 0.9 < data.inputs[:, 0].std() < 1.1 and abs(data.inputs[:, 0].mean()) < 0.1  # 3,257 rows are like the others
    for file in ("adult.data.gz", "adult.test.gz"):
        shutil.copyfile(shared_data(f"adult/{file}"), tmp_path / file)
    assert load("adult", root=str(tmp_path)).description["sha256"] == data.description["sha256"]


ADULT = """age,workclass,sex,income,split
20, Private,Male,<=50K,train
40,?,Female,>50K.,train
60,Private,Female,<=50K.,test
60,State-gov,Male,>50K,test
"""


def test_adult_reads_answers_of_either_form_and_refuses_others(tmp_path):
    (tmp_path / "adult.csv").write_text(ADULT)
    data = load("adult", root=str(tmp_path))
    assert data.targets.tolist() == [0, 1] and len(data.test_inputs) == len(data.auxiliary_inputs) == 1
    (tmp_path / "adult.csv").write_text(ADULT.replace(">50K.", "rich"))
    with pytest.raises(ValueError, match="income has the values"):
        load("adult", root=str(tmp_path))


def test_a_table_is_encoded_by_the_fitted_rows_alone_by_hand():
    """Rows 1 and 2: ages 20 and 40, mean 30, deviation 10; words ?, Private and one column for all others; no word of
    a number, no number of a word.
    """
    table = pd.DataFrame(
        {
            "age": ["60", "20", "40", "sixty", None],
            "work": ["State", "Private", None, "7", "Private"],
            "note": ["x"] * 5,
        }
    )
    table.loc[1:2, "note"] = None
    rows = tabular._encoded(table, np.array([1, 2]))[0].tolist()
    assert rows == [[3, 0, 0, 1], [-1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_no_training_row_moves_the_encoding_of_another(tmp_path):
    """A new word, a huge number or garbage in a training row changes neither the features nor any other row."""
    rng = np.random.default_rng(0)

    def lines(first):
        rows = [first] + [
            f"{rng.integers(20, 60)},{rng.choice(['Private', 'Local-gov', '?'])},{rng.choice(['Male', 'Female'])},"
            f"{rng.choice(['<=50K', '>50K'])},{'train' if k < 30 else 'test'}"
            for k in range(130)
        ]
        return "\n".join(["age,workclass,sex,income,split", *rows])

    read = []
    for first in ("30,Private,Male,<=50K,train", "1e9,Never-heard-of,Male,<=50K,train", "old,?,x,<=50K,train"):
        rng = np.random.default_rng(0)
        (tmp_path / "adult.csv").write_text(lines(first))
        read.append(load("adult", root=str(tmp_path)))
    for other in read[1:]:
        assert torch.equal(other.inputs[1:], read[0].inputs[1:]) and (other.mean, other.std) == (
            read[0].mean,
            read[0].std,
        )
        assert torch.equal(other.test_inputs, read[0].test_inputs) and other.statistics_of == "auxiliary"
    assert read[1].inputs[0, 4] == 1 and read[0].inputs[0, 4] == 0  # age; ?, Local-gov, Private, others
    asked = load("adult", root=str(tmp_path), statistics="training")
    assert asked.statistics_of == "training" and asked.inputs.shape[1] > read[0].inputs.shape[1]


def test_lending_club_components_are_scikit_learns(shared_data):
    from sklearn.decomposition import PCA

    root = shared_data("lending_club").parent
    data = load("lending_club", root=str(root))
    assert (
        data.classes == 0
        and data.input_shape == (10,)
        and len(data.inputs) == 6705
        and 6 <= data.targets.min() < data.targets.max() < 22
    )
    table = pd.read_csv(root / "lending_club" / "loan_data.csv.gz")
    rates = (table.pop("int.rate") * 100).to_numpy(np.float32)
    train = np.ones(len(table), dtype=bool)
    train[torch.randperm(len(table), generator=torch.Generator().manual_seed(0)).numpy()[: int(0.3 * len(table))]] = (
        False
    )
    auxiliary = tabular.Deal.of(train, 0, (2, 3)).auxiliary
    rows, _ = tabular._encoded(table.drop(columns="not.fully.paid"), auxiliary)
    oracle = PCA(10, svd_solver="full").fit(rows[auxiliary]).transform(rows[train])
    assert torch.equal(data.targets, torch.tensor(rates[train]))
    assert np.allclose(np.abs(data.inputs.numpy()), np.abs(oracle), atol=1e-4)
    cosines = (data.inputs.numpy() * oracle).sum(0) / (oracle**2).sum(0)
    assert np.allclose(np.abs(cosines), 1, atol=1e-5)  # each component as a whole has one sign


def test_the_wide_lending_club_table(tmp_path):
    n = 600
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "id": range(n),
            "loan_amnt": rng.integers(1000, 9000, n),
            "term": [" 36 months", " 60 months"] * (n // 2),
            "int_rate": [f"{5 + k / 100}%" for k in range(n)],
            "annual_inc": rng.normal(5e4, 1e4, n),
            "purpose": ["car", "house", "other"] * (n // 3),
            "url": "x",
            "revol_util": [None] * 500 + ["9.5%"] * 100,
            "total_pymnt": rng.normal(size=n),
        }
    )
    table.loc[0, "int_rate"] = None
    table.to_csv(tmp_path / "loan.csv", index=False)
    data = load("lending_club", root=str(tmp_path), components=4)
    assert len(data.inputs) + len(data.test_inputs) + len(data.auxiliary_inputs) == n - 1 and data.input_shape == (4,)
    assert (data.targets * 100 - (data.targets * 100).round()).abs().max() < 1e-3 and data.targets.min() >= 5.01 - 1e-6
    assert load("lending_club", root=str(tmp_path), components=1).input_shape == (1,)
    # Encoded: loan, term, income, three purposes and one column for all others.
    with pytest.raises(ValueError, match="between 1 and 7, as 60 rows of 7 encoded features have no more"):
        load("lending_club", root=str(tmp_path), components=8)
    table.drop(columns="int_rate").to_csv(tmp_path / "loan.csv", index=False)
    with pytest.raises(ValueError, match=r"no column int\.rate"):
        load("lending_club", root=str(tmp_path))


@pytest.mark.parametrize(("options", "classes"), [({}, 8), ({"classes": 9}, 9), ({"regression": True}, 0)])
def test_npz_takes_whole_floats_for_classes_unless_they_are_quantities(options, classes, tmp_path):
    targets = np.arange(320) % 8
    root = archive(tmp_path / "a.npz", inputs=np.random.default_rng(0).normal(size=(320, 4)), targets=targets * 1.0)
    data = load("npz", root=root, **options)
    assert data.classes == classes and data.targets.is_floating_point() == (classes == 0)
    assert sorted(torch.cat([data.targets, data.test_targets, data.auxiliary_targets]).tolist()) == sorted(targets)
    assert ("regression" in data.description.get("read_as", "")) == (classes > 0)


def test_npz_with_one_target_that_is_no_class_is_a_regression_or_refused(tmp_path):
    inputs, targets = np.random.default_rng(0).normal(size=(320, 4)), np.arange(320) % 8 + 0.5
    assert load("npz", root=archive(tmp_path / "a.npz", inputs=inputs, targets=targets)).classes == 0
    held = {"test_inputs": inputs, "test_targets": targets - 0.5}
    with pytest.raises(ValueError, match="regression = true"):
        load("npz", root=archive(tmp_path / "b.npz", inputs=inputs, targets=targets, **held))
