"""A folder of pictures is read as what it is, whatever its files' format, and no training picture decides how."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.defenses.data import load
from PIL import Image


def write(folder: Path, count: int, kind: str = "L", side: int = 8, suffix: str = ".png", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        shape = (side, side, 3) if kind == "RGB" else (side, side)
        if kind == "I;16":
            image = Image.fromarray(rng.integers(0, 65_536, shape).astype(np.uint16))
        else:
            image = Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8), mode=kind)
        image.save(folder / f"{i:03d}{suffix}")


@pytest.fixture
def two_classes(tmp_path: Path) -> Path:
    write(tmp_path / "ill", 10, seed=1)
    write(tmp_path / "well", 10, seed=2)
    return tmp_path


def test_every_picture_is_in_one_split_with_the_label_of_its_folder(two_classes: Path) -> None:
    data = load("images", root=str(two_classes), seed=0)
    assert (len(data.inputs), len(data.test_inputs), len(data.auxiliary_inputs), data.classes) == (16, 2, 2, 2)
    read = torch.cat([data.inputs, data.test_inputs, data.auxiliary_inputs])
    labels = torch.cat([data.targets, data.test_targets, data.auxiliary_targets])
    on_disk = {
        np.asarray(Image.open(path)).tobytes(): label
        for label, name in enumerate(["ill", "well"])
        for path in (two_classes / name).iterdir()
    }
    assert {(x * 255).round().byte().numpy().tobytes(): int(y) for x, y in zip(read, labels)} == on_disk


def test_files_that_are_no_pictures_are_named(two_classes: Path) -> None:
    assert load("images", root=str(two_classes), seed=1).remarks == ()
    next(path for path in two_classes.iterdir() if path.is_dir()).joinpath("read.me").write_text("of the pictures")
    (remark,) = load("images", root=str(two_classes), seed=1).remarks
    assert remark.startswith("1 ") and "read.me" in remark


@pytest.mark.parametrize(
    ("kind", "most"), [("L", 255), ("I;16", 65_535), ("RGB", 255)], ids=["8 bits", "16 bits", "colour"]
)
def test_values_are_divided_by_the_largest_of_their_format(tmp_path: Path, kind: str, most: int) -> None:
    for label in ("a", "b"):
        write(tmp_path / label, 5, kind)
    data = load("images", root=str(tmp_path), seed=0)
    largest = max(float(x.max()) for x in (data.inputs, data.test_inputs, data.auxiliary_inputs))
    written = max(int(np.asarray(Image.open(path)).max()) for path in tmp_path.rglob("*.png"))
    assert largest == pytest.approx(written / most, abs=1e-6)
    assert data.inputs.shape[1] == (3 if kind == "RGB" else 1)


def test_the_middle_is_cut_out_of_a_scaled_picture(tmp_path: Path) -> None:
    wide = np.zeros((8, 16), np.uint8)
    wide[:, 4:12] = 255  # the middle square
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(5):
            Image.fromarray(wide).save(tmp_path / label / f"{i}.png")
    data = load("images", root=str(tmp_path), seed=0, size=4)
    assert data.inputs.shape[1:] == (1, 4, 4)
    assert float(data.inputs[:, :, :, 1:3].min()) == 1.0


def test_given_splits_are_kept_and_a_train_folder_alone_is_a_class(tmp_path: Path) -> None:
    for split, count in (("train", 10), ("test", 3)):
        for label in ("a", "b"):
            write(tmp_path / split / label, count)
    data = load("images", root=str(tmp_path), seed=0)
    assert (len(data.inputs), len(data.test_inputs), len(data.auxiliary_inputs)) == (18, 6, 2)


def test_no_training_picture_decides_how_others_are_read(two_classes: Path) -> None:
    before = load("images", root=str(two_classes), seed=0)
    first = (before.inputs[0] * 255).round().byte().numpy()[0]
    path = next(p for p in two_classes.rglob("*.png") if np.array_equal(np.asarray(Image.open(p)), first))
    Image.fromarray(np.full((30, 20, 3), [250, 0, 0], np.uint8)).save(path)  # large, and in colour
    after = load("images", root=str(two_classes), seed=0)
    assert torch.equal(after.inputs[1:], before.inputs[1:])
    assert torch.equal(after.test_inputs, before.test_inputs)
    assert after.inputs.shape == before.inputs.shape and not torch.equal(after.inputs[0], before.inputs[0])


def test_transparent_and_palette_pictures_and_exif_turns(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(5):
            half = np.zeros((8, 8, 3), np.uint8)
            half[:4] = 255  # white above
            image = Image.fromarray(half)
            exif = Image.Exif()
            exif[0x0112] = 3  # upside down
            image.convert("P" if i % 2 else "RGBA").save(tmp_path / label / f"{i}.png", exif=exif)
    data = load("images", root=str(tmp_path), seed=0)
    assert float(data.inputs[:, :, :4].max()) == 0.0 and float(data.inputs[:, :, 4:].min()) == 1.0


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda root: (root / "ill" / "000.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged"), "000.png"),
        (lambda root: (root / "ill" / "x.dcm").write_bytes(b"DICM"), "x.dcm"),
        (lambda root: [write(root / name, 10, side=9) for name in ("a", "b")], "size = 64"),
        (lambda root: [path.unlink() for path in root.rglob("*.png")], "no pictures"),
    ],
    ids=["damaged", "DICOM", "several sizes", "empty"],
)
def test_what_cannot_be_read_is_named(two_classes: Path, break_it, named: str) -> None:
    break_it(two_classes)
    with pytest.raises(ValueError, match=named):
        load("images", root=str(two_classes), seed=0)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 64.0}, {"size": 10_000}, {"channels": 2}])
def test_options_out_of_range_are_refused(two_classes: Path, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        load("images", root=str(two_classes), seed=0, **options)


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with pytest.raises(ValueError, match="a folder for every class"):
        load("images", root=str(tmp_path), seed=0)
