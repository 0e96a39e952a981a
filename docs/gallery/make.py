"""The pictures of docs/gallery.md, by the tool itself: `python docs/gallery/make.py` runs the tutorial, the page on
membership and the demo, and draws what they left behind. Plots and pages are pictured by headless Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from dpfl_audit import Results
from dpfl_audit.audit.demo import demo
from dpfl_audit.audit.proven.numbers import Numbers, number_rows
from dpfl_audit.audit.report import plots
from dpfl_audit.audit.report.pictures import read_pictures
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).resolve().parent
SCALE, GAP, MARGIN = 2, 6, 150  # pixels: of an image's pixel, between images, left of them
ROWS = (("bare", "no protection"), ("stronger", "little noise"), ("proven", "ε = 8 proven"))
MULTIPLIERS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)


def rebuilt(folder: Path) -> Image.Image:
    """What was sent, and what the attack made of it under each noise: a row each, a column a picture."""
    shown: list[tuple[str, np.ndarray]] = []
    for name, label in ROWS:
        results = Results.read(folder / f"results-{name}")
        pictures = read_pictures(folder / f"results-{name}", results.attacks[0])
        if pictures.rebuilt is None or pictures.originals is None:
            raise SystemExit(f"results-{name} has no pictures")
        pairs = sorted(pictures.worst_first, key=lambda pair: pair.original)
        if not shown:
            shown.append(("the true pictures", pictures.originals[[pair.original for pair in pairs]]))
        shown.append((label, pictures.rebuilt[[pair.reconstruction for pair in pairs]]))
    count, _, height, width = shown[0][1].shape
    across, down = width * SCALE + GAP, height * SCALE + GAP
    sheet = Image.new("RGB", (MARGIN + count * across, len(shown) * down), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.truetype(findfont("DejaVu Sans"), 15)
    for row, (label, images) in enumerate(shown):
        draw.text((4, row * down + height * SCALE // 2 - 8), label, fill="#222222", font=font)
        for column, image in enumerate(images):
            pixels = Image.fromarray((255 * image.clip(0, 1)).round().astype("uint8").transpose(1, 2, 0))
            large = pixels.resize((width * SCALE, height * SCALE), Image.Resampling.NEAREST)
            sheet.paste(large, (MARGIN + column * across, row * down))
    return sheet


def epsilon_curve() -> str:
    """Proven ε of 20 rounds with ten clients against noise, for who sees messages and who sees their sum."""

    def row(multiplier: float, clients: int) -> plots.Point:
        noise = multiplier * clients**0.5  # of a sum, where the noises of its senders add up
        numbers = Numbers(1.0, noise, rounds=20, clients=clients)
        (priced,) = number_rows(numbers, None, 1e-5, ["client"], ["zero_out"])
        return plots.Point(multiplier, priced.proven or 0.0)

    series = {
        "the server, each message": [row(z, 1) for z in MULTIPLIERS],
        "broadcasts, sums of ten": [row(z, 10) for z in MULTIPLIERS],
    }
    return plots.leakage(series, "noise multiplier", "proven ε", 8.0, "ε = 8")


def roc(folder: Path) -> str:
    """How many members two attacks recognise at which rate of false alarms."""
    attacks = Results.read(folder / "results").attacks
    return plots.roc_plot({attack.attack: attack.roc for attack in attacks if attack.roc is not None})


def pictured(page: Path, width: int, height: int) -> Image.Image:
    """A page's first screen."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("Chromium is needed to picture a page")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]  # noqa: RUF005
            + [f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
            + [f"--screenshot={shot}", page.resolve().as_uri()],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return Image.open(BytesIO(shot.read_bytes())).convert("RGB")


def drawn(plot: str, folder: Path) -> Image.Image:
    """plot: the address of a picture, as the report's page has it."""
    page = folder / "plot.html"
    page.write_text(f"<body style='margin: 0; background: white'><img width=540 src='{plot}'>", encoding="utf-8")
    return pictured(page, 540, 400)


def main() -> None:
    argparse.ArgumentParser(description="Make the pictures of docs/gallery.md.").parse_args()
    sys.path.insert(0, str(HERE.parent))
    from commands import programs, run_page

    with tempfile.TemporaryDirectory() as temporary, programs() as environment:
        tutorial, membership = Path(temporary, "tutorial"), Path(temporary, "membership")
        for folder, page in ((tutorial, "tutorial.md"), (membership, "howto/membership.md")):
            folder.mkdir()
            failed = [one for one in run_page(HERE.parent / page, folder, environment) if one.code]
            if failed:
                raise SystemExit(str(failed[0]))
        made = {
            "rebuilt": rebuilt(tutorial),
            "epsilon": drawn(epsilon_curve(), tutorial),
            "roc": drawn(roc(membership), membership),
            "page": pictured(demo(Path(temporary, "demo")).page, 1200, 1000).resize(
                (900, 750), Image.Resampling.LANCZOS
            ),
        }
    for name, image in made.items():
        image.save(HERE / f"{name}.webp", quality=80, method=6)
        print(f"{name}.webp  {image.width} × {image.height}  {(HERE / f'{name}.webp').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
