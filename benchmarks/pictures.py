"""How close attacks come to pictures beside the ceiling in decibels that the proof sets: the demo, every example of
pictures, and gradients of one client at noises that prove ε of one record.

    python benchmarks/pictures.py --data-root DIR [--only demo examples epsilons] [-o build/pictures]

Examples run two rounds with 20 records a client, one captured client and 300 auxiliary records; an inversion takes 60
iterations. Printed as markdown: the largest PSNR of any picture, and the least ceiling of any message. Exit code 1
where a picture is above the ceiling of its message.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import quiet  # noqa: F401 - before torch
from ceilings import config, noise_for
from dpfl_audit.audit.demo import demo
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import Config, read_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.key import PUBLISHED

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALLER = (
    *("scheme.rounds=2", "data.samples_per_client=20", "local.batch_size=20", "local.epochs=1"),
    *("capture.clients=[0]", "capture.auxiliary=300", "capture.candidates=0"),
)
EPSILONS = (1.0, 4.0, 8.0, 30.0, 100.0, 300.0)
HEAD = ("setting", "proven ε (record)", "pictures", "largest PSNR", "ceiling", "ceiling, even pixels", "above")


def attacked(made: Config, base: Path, folder: Path) -> Results:
    train(build(made, base), folder, force=True, key=PUBLISHED)
    out = folder.with_name(f"{folder.name}-results")
    run(folder, out, RunOptions(attacks=("inversion",), overrides=("inversion.iterations=60",)), force=True)
    return Results.read(out)


def row(name: str, results: Results) -> tuple[str, int]:
    """A line of the table, and how many pictures are above the ceiling of their message."""
    entries = [entry for entry in results.attacks if entry.kind == "inversion" and entry.pairs]
    pairs = [(pair.psnr, entry.value("psnr_ceiling")) for entry in entries for pair in entry.pairs]
    known = [(psnr, most) for psnr, most in pairs if psnr is not None]
    above = sum(most is not None and psnr > most for psnr, most in known)
    observer = entries[0].observer if entries else "server"
    record = [line.proven for line in results.epsilon if line.unit == "record" and line.observer == observer]
    ceilings = [[entry.value(key) for entry in entries] for key in ("psnr_ceiling", "psnr_ceiling_even")]
    least = ["–" if None in own or not own else f"{min(v for v in own if v is not None):.2f}" for own in ceilings]
    best = f"{max(psnr for psnr, _ in known):.2f}" if known else "–"
    epsilon = "–" if not record or record[0] is None else f"{record[0]:.3g}"
    return f"| {' | '.join([name, epsilon, str(len(known)), best, *least, str(above)])} |", above


def examples(root: Path, home: Path) -> Iterator[tuple[str, Results | str]]:
    for path in sorted(EXAMPLES.glob("*.toml")):
        if read_config(path).data.name != "fashion_mnist":
            continue
        try:
            made = read_config(path, overrides=(f'data.root="{root}"', *SMALLER))
            yield f"examples/{path.name}", attacked(made, path.parent, home / path.stem)
        except BadInput as error:
            yield f"examples/{path.name}", str(error)


def epsilons(home: Path) -> Iterator[tuple[str, Results]]:
    for data in ("digits", "photos"):
        for epsilon in EPSILONS:
            made = config(data, "ldp", noise_for(data, "ldp", epsilon))
            yield f"{data}, ldp at ε = {epsilon:g}", attacked(made, Path(), home / f"{data}-{epsilon:g}")


def settings(only: list[str], root: Path, home: Path) -> Iterator[tuple[str, Results | str]]:
    if "demo" in only:
        if not (home / "demo").exists():
            demo(home / "demo")
        for path in sorted((home / "demo").rglob("results.json")):
            yield f"demo: {path.parent.parent.name}", Results.read(path.parent)
    if "epsilons" in only:
        yield from epsilons(home)
    if "examples" in only:
        yield from examples(root, home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder that holds FashionMNIST/")
    parser.add_argument("--only", nargs="+", default=["demo", "epsilons", "examples"])
    parser.add_argument("-o", "--output", type=Path, default=Path("build/pictures"))
    asked = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
    broken, without = 0, []
    for name, results in settings(asked.only, asked.data_root.resolve(), asked.output):
        if isinstance(results, str):
            without.append(name)
            continue
        line, above = row(name, results)
        broken += above
        print(line, flush=True)
    print(f"\nNo inversion of what their observer sees: {', '.join(without) or 'none'}.")
    sys.exit(int(broken > 0))


if __name__ == "__main__":
    main()
