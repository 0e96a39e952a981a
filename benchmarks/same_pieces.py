"""What `same_results.py` runs: pieces, each a few commands of `audit` in a folder of its own.

Commands are typed with `--json`, a published noise key, one seed and no weights of LPIPS, so that their numbers are the
same on every run. Configs stand here and not in the tree that is measured: a page that is rewritten changes nothing.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KEY = ("--noise-key", "published")
FEW = ("--set", "inversion.iterations=30")


class Book(Protocol):
    """Where a piece writes down what it measured. folder: empty at first; commands run there. quick: a smaller case."""

    folder: Path
    tree: Path
    data: Path
    quick: bool

    def audit(self, name: str, *words: str) -> int:
        """Runs `audit WORDS --json`, writes down all it prints by `name`, and gives its exit code."""
        ...

    def files(self, name: str, folder: str) -> None:
        """Writes down what a folder of a setup or of results holds in arrays and tables."""
        ...

    def lines(self, name: str, file: str) -> None:
        """Writes down a text, line by line."""
        ...


Piece = Callable[[Book], None]


def attacked(book: Book, name: str, config: str, *runs: Sequence[str], sets: Sequence[str] = ()) -> None:
    """Trains a config, and attacks it once for each of `runs`, the words after `audit run SETUP -o RESULTS`."""
    (book.folder / f"{name}.toml").write_text(config, encoding="utf-8")
    overrides = [word for entry in sets for word in ("--set", entry)]
    if book.audit(f"{name}/train", "train", f"{name}.toml", "-o", name, *KEY, *overrides) == 0:
        book.files(f"{name}/setup", name)
        for number, words in enumerate(runs):
            book.audit(f"{name}/run-{number}", "run", name, "-o", f"{name}-{number}", *words)
            book.files(f"{name}/run-{number}", f"{name}-{number}")


# --- the tutorial

TUTORIAL = """
name = "no protection"
data = { name = "photos", classes = 20, clients = 10, samples_per_client = 50 }
model = { name = "mlp", options = { widths = [128] } }
local = { optimiser = "sgd", lr = 0.1, batch_size = 8 }
scheme = { name = "fedavg", rounds = 20, share = "gradient" }
capture = { rounds = 1 }
audit = { observer = "server", unit = "client", adjacency = "zero_out", delta = 1e-5 }
attack.inversion = { objective = "cosine", iterations = 200 }
"""
GAUSSIAN = ("scheme.name=local-gaussian", "scheme.clip=1")
LEVELS = tuple(word for gate in ("level >= high", "proof == none", "proven > 8") for word in ("--fail-if", gate))
PICTURES = ("--fail-if", "reidentified > 0.2", "--fail-if", "psnr > 20")


def tutorial(book: Book) -> None:
    inversion = ("--attack", "inversion")
    attacked(book, "bare", TUTORIAL, inversion)
    little = (*GAUSSIAN, 'name="little noise"', "scheme.noise_multiplier=0.01")
    attacked(book, "little", TUTORIAL, inversion, (*inversion, "--set", "inversion.iterations=100"), sets=little)
    price = [word for entry in (*GAUSSIAN, "scheme.target_epsilon=8") for word in ("--set", entry)]
    book.audit("price", "epsilon", "bare.toml", *price, "--unit", "client", "--adjacency", "zero_out")
    attacked(book, "proven", TUTORIAL, inversion, sets=(*GAUSSIAN, 'name="epsilon 8"', "scheme.target_epsilon=8"))
    numbers = "--clip 1 --noise-std 2.69 --noise-on sum --rounds 20 --clients 1000 --unit client --adjacency zero_out"
    book.audit("numbers", "epsilon", *numbers.split())
    book.audit("diff", "diff", "bare-0", "proven-0")
    book.audit("check", "check", "proven")
    for name in ("bare", "little", "proven"):
        book.audit(f"{name}/report", "report", f"{name}-0", "--format", "json")


def secret(book: Book) -> None:
    """Verdict and gates where the key is no published one: only then anything counts as proven."""
    (book.folder / "key").write_text("d0c5" * 16, encoding="utf-8")
    (book.folder / "proven.toml").write_text(TUTORIAL, encoding="utf-8")
    sets = [word for entry in (*GAUSSIAN, "scheme.target_epsilon=8") for word in ("--set", entry)]
    book.audit("train", "train", "proven.toml", "-o", "proven", "--noise-key", "key", *sets)
    book.audit("run", "run", "proven", "-o", "results", "--attack", "inversion", *FEW, *LEVELS, *PICTURES)
    book.audit("report", "report", "results", "--format", "json")
    book.audit("card", "report", "results", "--card", "card.md")
    book.lines("card", "card.md")


# --- one default run for each kind of data

MLP = 'model = { name = "mlp", options = { widths = [32] } }'
SGD = 'local = { optimiser = "sgd", lr = 0.1, batch_size = 10, epochs = 2 }'
NOISY = 'scheme = { name = "local-gaussian", rounds = 2, clip = 1.0, noise_multiplier = 0.1 }'
KINDS = {
    "photos": (
        'data = { name = "photos", classes = 10, clients = 2, samples_per_client = 4 }',
        'model = { name = "mlp", options = { widths = [64] } }',
        'local = { optimiser = "sgd", lr = 0.1, batch_size = 4 }',
        'scheme = { name = "fedavg", rounds = 1, share = "gradient" }',
    ),
    "digits": ('data = { name = "digits", clients = 4, samples_per_client = 40 }', MLP, SGD, NOISY),
    "table": (
        'data = { name = "csv", root = "table.csv", target = "outcome", options = { drop = ["id"] },'
        " clients = 4, samples_per_client = 40 }",
        'model = { name = "logistic" }',
        SGD,
        NOISY,
    ),
    "regression": (
        'data = { name = "csv", root = "table.csv", target = "age", options = { drop = ["id"], regression = true },'
        " clients = 4, samples_per_client = 40 }",
        'model = { name = "linear" }',
        SGD,
        NOISY,
    ),
    "npz": ('data = { name = "npz", root = "mine.npz", clients = 4, samples_per_client = 40 }', MLP, SGD, NOISY),
}


def table_file(path: Path) -> None:
    """400 patients, as docs/howto/own-data.md makes them."""
    draw = random.Random(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "age", "ward", "dose", "outcome"])
        for number in range(400):
            age, dose = draw.randint(20, 90), draw.choice([5, 10, 20, ""])
            outcome = "ill" if draw.random() < age / 100 else "well"
            table.writerow([number, age, draw.choice(["north", "south"]), dose, outcome])


def npz_file(path: Path) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    np.savez(path, inputs=(digits.images[:, None] * 15).astype("uint8"), targets=digits.target)


def default_run(kind: str) -> Piece:
    def piece(book: Book) -> None:
        table_file(book.folder / "table.csv")
        npz_file(book.folder / "mine.npz")
        config = "\n".join((*KINDS[kind], "capture = { candidates = 40, auxiliary = 40 }"))
        attacked(book, kind, config, (*LEVELS, "--minutes", "0.1") if book.quick else LEVELS)
        book.audit("report", "report", f"{kind}-0", "--format", "json")
        book.audit("card", "report", f"{kind}-0", "--card", "card.md")
        book.lines("card", "card.md")

    return piece


# --- the inversion's ways

AUTO = ("--attack", "auto", *FEW)


def by(*settings: str) -> tuple[str, ...]:
    """The words of an inversion by these settings, with few iterations."""
    return ("--attack", "inversion", *FEW, *(word for entry in settings for word in ("--set", f"inversion.{entry}")))


@dataclass(frozen=True)
class Way:
    """A message and how it is attacked. sets: what else its config has, by `--set`."""

    data: str = "digits"
    model: str = "mlp"
    share: str = "gradient"
    optimiser: str = "sgd"
    words: tuple[str, ...] = AUTO
    sets: tuple[str, ...] = ()


NOISE = ("scheme.name=local-gaussian", "scheme.clip=1", "scheme.noise_multiplier=0.001")
PUBLISHED = ("sme", "bayes", "analytic", "fedavg-span", "fedavg-dimitrov", "idlg")
INVERSIONS = {  # each takes another way through attacks/inversion
    "adam": Way("photos", share="update", optimiser="adam"),
    "momentum": Way("photos", share="update", optimiser="momentum"),
    "many steps": Way("photos", share="update"),
    "cnn": Way(model="cnn"),
    "cnn update": Way(model="cnn", share="update"),
    "cnn6": Way("photos", "cnn6"),
    "lenet": Way(model="lenet"),
    "weights": Way(share="weights"),
    "table": Way("table"),
    "table update": Way("table", share="update"),
    "ablated": Way(words=("--ablate", *FEW)),
    "all rounds": Way(model="cnn", sets=("scheme.rounds=2", "local.batch_size=6")),
    "sum": Way(words=(*AUTO, "--observer", "aggregate"), sets=("data.clients=2",)),
    "noise": Way(words=AUTO, sets=NOISE),
    "clip": Way(words=AUTO, sets=(*NOISE[:-1], "scheme.noise_multiplier=0", "scheme.clip=0.1")),
    "inferred": Way(model="cnn", words=by('labels="inferred"')),
    "restarts": Way(model="cnn", words=by("restarts=4")),
    "consensus": Way(model="cnn", words=by("restarts=2", "consensus=0.1", 'optimiser="adam"')),
    "softened": Way(model="cnn", words=by("softened=10")),
    "simulated": Way(model="cnn", share="update", words=by("simulated=10", "reorder=true")),
    "spectrum-prior": Way(words=by('preset="spectrum-prior"'), sets=NOISE),
    **{preset: Way(share="update", words=by(f'preset="{preset}"')) for preset in PUBLISHED},
}
DATA = {
    "photos": 'data = { name = "photos", classes = 10, clients = 1, samples_per_client = 6 }',
    "digits": 'data = { name = "digits", clients = 1, samples_per_client = 6 }',
    "table": KINDS["table"][0].replace("clients = 4, samples_per_client = 40", "clients = 1, samples_per_client = 6"),
}
OPTIONS = {"mlp": ", options = { widths = [48] }", "cnn": ", options = { channels = [4, 8] }"}


def inversion(name: str) -> Piece:
    way = INVERSIONS[name]

    def piece(book: Book) -> None:
        table_file(book.folder / "table.csv")
        config = (
            DATA[way.data],
            f'model = {{ name = "{way.model}"{OPTIONS.get(way.model, "")} }}',
            f'local = {{ optimiser = "{way.optimiser}", lr = 0.01, batch_size = 3 }}',
            f'scheme = {{ name = "fedavg", rounds = 1, share = "{way.share}" }}',
        )
        attacked(book, "case", "\n".join(config), way.words, sets=way.sets)

    return piece


# --- every example

SMALL = (
    "scheme.rounds=2",
    "local.epochs=1",
    "data.clients=6",
    "data.samples_per_client=40",
    "capture.clients=[0]",
    "capture.auxiliary=15",
    "capture.candidates=40",
)
BESIDE = {  # what some schemes need to fit six small clients
    "anonymous-gossip": ("scheme.neighbours=3",),
    "iteration-gaussian": ("scheme.b=3",),
    "iteration-laplace": ("scheme.b=3",),
    "fednore2": ("data.samples_per_client=100",),
    "fednore12": ("data.samples_per_client=100",),
}
STAR = ("server", "aggregate", "downlink", "uplink", "uplink(2)", "model")
OBSERVERS = {"anonymous-gossip": ("peer", "uplink"), "anonymous-leader": ("peer", "leader", "uplink")}


def example(name: str) -> Piece:
    """A small federation of an example, attacked in three ways, and its ε for whoever looks."""

    def piece(book: Book) -> None:
        config = (book.tree / "examples" / f"{name}.toml").read_text(encoding="utf-8")
        more = ["scheme.participants=3"] if "\nparticipants" in config else []
        sets = (*SMALL, *BESIDE.get(name, ()), *more, f'data.root="{book.data}"')
        quick = ("--quick", "--attack")
        attacks = [
            (*quick, "inversion", *FEW),
            (*quick, "membership-cosine"),
            (*quick, "canary", "--set", "canary.numbers=2e7", "--fail-if", "demonstrated > 1"),
        ]
        attacked(book, name, config, *(attacks[:1] if book.quick else attacks), sets=sets)

    return piece


def priced(name: str) -> Piece:
    """The ε of an example as it stands, for every observer, unit and adjacency; nothing is trained."""

    def piece(book: Book) -> None:
        path = str(book.tree / "examples" / f"{name}.toml")
        observers = [word for who in OBSERVERS.get(name, STAR) for word in ("--observer", who)]
        book.audit("any key", "epsilon", path, *observers)
        if not book.quick:
            book.audit("published key", "epsilon", path, *KEY)
            book.audit("advice", "advise", path)

    return piece


# --- choose

STUDY = """
data = { name = "digits", clients = 4, samples_per_client = 30 }
model = { name = "mlp", options = { widths = [16] } }
local = { optimiser = "sgd", lr = 0.2, batch_size = 10, epochs = 2 }
scheme = { name = "local-gaussian", clip = 1.0, noise_multiplier = 0.1, rounds = 4 }
capture = { candidates = 60 }
attack.inversion = { iterations = 30 }
"""


def study(book: Book) -> None:
    (book.folder / "study.toml").write_text(STUDY, encoding="utf-8")
    words = "--vary scheme.noise_multiplier=0.01..10 --vary scheme.clip=0.3,1 --trials 5 --seeds 2 --minutes 0.2"
    limits = "--accuracy-at-least 0.2 --leakage-at-most 0.5"
    book.audit("study", "choose", "study.toml", "-o", "study", *KEY, *words.split(), *limits.split())


def pieces(tree: Path, quick: bool) -> dict[str, Piece]:
    """Every piece by its name, the longest first; quick: of examples' attacks one each."""
    examples = sorted(path.stem for path in (tree / "examples").glob("*.toml"))
    few = ("analytic", "adam", "table") if quick else INVERSIONS
    return {
        **{f"default/{kind}": default_run(kind) for kind in KINDS},
        "study": study,
        "tutorial": tutorial,
        "secret": secret,
        **{f"inversion/{name}": inversion(name) for name in few},
        **{f"examples/{name}": example(name) for name in (examples[::6] if quick else examples)},
        **{f"epsilon/{name}": priced(name) for name in examples},
    }
