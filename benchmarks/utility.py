"""The schemes at their papers' settings: test accuracy beside the published one, claimed ε beside the proven one.

    python benchmarks/utility.py --data-root /path/to/data [--only NAME] [--quick]

Trains every config of examples/ and writes the tables of benchmarks/measured/schemes.md; the text around them is kept.
A row is what `audit train examples/NAME.toml -o setup --set data.root=/path/to/data` puts into
setup/auditor/figures.csv. About 12 minutes on one thread. With --only (one scheme and its variants) or --quick (two
rounds each) the tables are printed and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.files import write_bytes
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.results.format import Epsilon
from dpfl_audit.audit.say.words import times
from dpfl_audit.audit.setup import experiment
from dpfl_audit.audit.setup.config import read_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.federation import Figures, RoundRecord, State, evaluate, run_many
from dpfl_audit.defenses.terms import Observer

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PAGE = ROOT / "examples", ROOT / "benchmarks" / "measured" / "schemes.md"
BEGIN, END = "<!-- tables: written by benchmarks/utility.py -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Row:
    """A config of examples/ and what is known of it beforehand.

    paper: the paper's setting. here: what is other in the config. published: the paper's result, and where it stands.
    why: why ours must differ.
    """

    name: str
    paper: str
    here: str
    published: str
    why: str


@dataclass(frozen=True)
class Variant:
    """A config of examples/ with a few values changed, to find what a result hangs on."""

    name: str
    changed: tuple[str, ...]
    asks: str


CH3 = (
    "MNIST, 100 clients with 2 classes each, 50 a round, MLP 200-200, 10 epochs, lr .1·.96^t, σ 8, median clip by"
    " layer, 52 rounds"
)
CH5 = "IID MNIST, 100 clients, 70 a round, MLP 200-200, lr .001, C 1"
CDP_PAPER = (
    "MNIST, 100 of 1,000 clients a round, 500 records and 2 classes each, batches of 5, lr .05, C 4, σ 6, 100 rounds"
)
NBA = "MNIST, 50 clients, MLP 256, T 25, ε 50, δ .01"
GEO = "MNIST, U 100, K 10, τ 5, C 5, M 30, ε 10, MLP with 32 linear units"
CH3_HERE, CH3_WHY = "Fashion-MNIST, 10 rounds, batch 50", "harder data, 10 of 52 rounds"
CH5_HERE = "Fashion-MNIST, 12 rounds, batch 10, 1 epoch"
CH5_WHY = (
    "harder data, 12 rounds at a small learning rate; the paper counts the best party of every round, our accuracy is"
    " the mean of all 100, of whom 30 sit out each round"
)

ROWS = (
    Row(
        "fedavg",
        "MNIST, 100 clients with 2 classes each, all of them, MLP 200-200, batch 10, 1 epoch, 380 rounds",
        "Fashion-MNIST, 20 rounds",
        "97 % (THESIS table 3.3)",
        "harder data, 20 of 380 rounds",
    ),
    Row("ldp", CH3, CH3_HERE, "95.9 % (THESIS table 3.3, plain DPFL)", CH3_WHY),
    Row(
        "cdp",
        "MNIST, 100 clients with 2 classes each, 50 a round, σ 1.18, 11 rounds",
        "Fashion-MNIST; lr .05, batch 50, 2 epochs are ours",
        "78 % (THESIS table 3.1, of Geyer et al.)",
        "harder data; the local training is not given",
    ),
    Row(
        "lcdp",
        "MNIST, as cdp; top 10 %, β .5, 10 epochs, lr .0025·.78^t, σ 2 and 1.18, 11 rounds",
        "Fashion-MNIST, batch 50",
        "80.24 % (THESIS table 3.1)",
        "impossible literally: (3.3) adds 1.18·S to every component of the mean, 50 times what cdp adds; over 199,210"
        " components that is a norm of 527·S beside an update of norm S, and the next round's S is larger still",
    ),
    Row("fednore1", CH3 + ", λ 1", CH3_HERE, "96.4 % at best (THESIS table 3.3)", CH3_WHY),
    Row(
        "fednore2",
        CH3 + ", λ 200",
        CH3_HERE + ", λ 1",
        "96.7 % at best (THESIS table 3.3)",
        CH3_WHY + "; at λ 200 the loss is undefined, and below λσ = √n its gradient is that of `ldp`",
    ),
    Row(
        "fednore12",
        "CIFAR-10, a CNN, λ 10 and 20; otherwise as fednore1",
        CH3_HERE + ", MLP 200-200, λ 1",
        "49.0 and 50.5 % (THESIS table 3.2)",
        "easier data than CIFAR-10 and another network; literally it is `fednore1`",
    ),
    Row(
        "nbafl",
        NBA,
        "Fashion-MNIST, 1,000 records a client; C 5, L 1, μ .1, lr .05, batch 20 are ours",
        "only curves (Fig. 2-5), no number in the text",
        "the values of C, μ and the learning rate are lost in our copy",
    ),
    Row("naafl", NBA, "as nbafl", "no number in the text", "the paper does not give its noise"),
    Row(
        "geometric",
        GEO + ", ϑ 1.05, δ .001",
        "Fashion-MNIST, 600 records a client; lr .2 is ours",
        "lowest test loss .889 (GEO table II, M* = 17); accuracy only as curves",
        "the paper gives no learning rate; the σ of its eq. 8, used here, is twice that of its table II",
    ),
    Row(
        "laplace",
        GEO,
        "as geometric, C an L1 norm",
        "only curves (GEO Fig. 2-3), below the Gaussian ones",
        "an L1 norm of 5 leaves 25,450 weights .0002 each; the noise left on each after averaging has std .0022",
    ),
    Row(
        "component",
        "Fashion-MNIST, 50 clients, a CNN, K 32, β 1.1, SGD .01, ε 1, δ 1e-5",
        "the CNN has 5,370 parameters, batch 32; σ0 26 as at ε .5 and 2",
        "3.8 points below no DP (ADN, Fig. 4b)",
        "impossible literally: noise of std √M·σ0·β·abs(w − G) on every weight, 2,096 times the weight itself, 296"
        " times after averaging over 50 clients",
    ),
    Row(
        "iteration-laplace",
        "Lending Club of 890,000 loans, 5,000 clients of 80, 500 a round, sorted by rate, ε 5, ζ 150, T 30, E 1",
        "Lending Club of 9,578 loans, 1,000 clients of 6, 100 a round; μ = λ = 1, whitened inputs",
        "MSE 23.13, without noise 22.59 (ITER table II)",
        "another table (its rates have variance 7.2, so 7.2 is what a constant gets); 100 noises averaged instead"
        " of 500",
    ),
    Row(
        "iteration-gaussian",
        "FEMNIST, 3,500 clients, 350 a round, a CNN, ε 30, δ 1e-4, ζ 3, E 12, T 240",
        "Fashion-MNIST, 1,000 clients of 5, 100 a round, a quarter of the channels; μ = λ = 2 and c2 = √2 are ours",
        "67.81 % (ITER table IV)",
        "impossible as printed: gradients are clipped to an L1 norm of 3, that is an L2 norm of .05 here, beside noise"
        " for an L2 norm of 3",
    ),
    Row(
        "anonymous-gossip", CH5 + ", ε 8, δ 1e-5, 30 neighbours, T 50", CH5_HERE, "67.01 % (THESIS table 5.4)", CH5_WHY
    ),
    Row(
        "anonymous-leader",
        CH5 + ", ε 8, δ 1e-5, T 20 and 50",
        CH5_HERE,
        "68.14 % (THESIS table 5.4), 41.23 % at T 20 (table 5.1)",
        CH5_WHY,
    ),
    Row(
        "thesis-baseline",
        CH5 + ", σ 2",
        CH5_HERE,
        "72.37 % (THESIS table 5.4)",
        "harder data, 12 rounds at a small learning rate",
    ),
    Row(
        "dpsgd",
        "MNIST, central, 700 epochs, ε 8, δ 1e-5",
        "Fashion-MNIST, 10 clients of 1,200, MLP with 32 units, 6 rounds, σ 2, C 4",
        "97 % (THESIS table 3.1, of Abadi et al.)",
        "a federation of small clients, a small network, 6 epochs",
    ),
    Row(
        "adap-dpfl",
        "MNIST, 10 clients of 6,000, CNN of 26,010 parameters, lots of 78, Adam .002, σ from 6 to 3.03, ε 2",
        "Fashion-MNIST, 10 clients of 1,200, MLP with 32 units, 60 rounds",
        "94.15 % at ε 2 (FMNIST 79.56 %)",
        "60 of some 15,000 rounds; by eq. 6 as printed C only shrinks, which Adam does not mind",
    ),
    Row(
        "ldp-fl",
        "MNIST, 100 clients, two-layer CNN, ε 1, range ±.075, lr .03, 10 rounds",
        "Fashion-MNIST, 500 records a client, batch 10, 1 epoch, MLP with 32 units",
        "96.24 % (FMNIST 86.26 % at ε 4, 200 clients)",
        "harder data, another network; batch size and epochs are not given",
    ),
    Row(
        "fed-cdp",
        CDP_PAPER,
        "Fashion-MNIST, 10 of 50 clients, MLP with 32 units, 10 rounds",
        "not found",
        "by the code's accountant σ is 6, its training file has .5; noise of std 4.8 a step on each of 25,450 numbers",
    ),
    Row(
        "fed-sdp",
        CDP_PAPER,
        "Fashion-MNIST, 20 of 100 clients, MLP with 32 units, 10 rounds",
        "not found",
        "noise of std 1.2 on each of 25,450 numbers a round",
    ),
    Row(
        "fed-alpha-cdp",
        CDP_PAPER + ", σ from 15 to 5",
        "Fashion-MNIST, 10 of 50 clients, MLP with 32 units, 10 rounds",
        "80.14 % at ε .3, 84.23 % at .5 (ADN)",
        "noise as of fed-cdp, scaled by the records' norms; ADN's parameters are not given",
    ),
    Row(
        "dp-dyns",
        "MNIST, central, C 4, σ 6",
        "Fashion-MNIST, 10 clients of 1,200, MLP with 32 units, 6 rounds",
        "77.20 % at ε .3, 93.88 % at 8 (ADN)",
        "how ADN made it federated is not said; 6 epochs",
    ),
    Row(
        "privatedl",
        "MNIST, LeNet-5, batches of 480, on Spark",
        "Fashion-MNIST, 10 clients of 1,920, MLP with 32 units, ours after the abstract",
        "69.59 % at ε .3, 92.61 % at 8 (ADN)",
        "another scheme, as far as we know",
    ),
    Row(
        "local-gaussian",
        "no paper's: as thesis-baseline with the noise that its clip needs",
        CH5_HERE + ", z 2",
        "none",
        "noise of std 2 on each of 199,210 numbers, beside an update of norm .06",
    ),
    Row(
        "central-gaussian",
        "a language model of 763,430 users, cohorts of 5,000, Poisson",
        "Fashion-MNIST, 10 of 100 clients on average, MLP with 32 units, C .5, z 1, 20 rounds",
        "no accuracy of images (McMahan et al. 2018)",
        "other data; noise of std .05 on each of 25,450 numbers a round",
    ),
)

VARIANTS = (
    Variant("geometric", ("scheme.epsilon=1e6",), "without noise"),
    Variant("geometric", ("scheme.ratio=1.0",), "with constant noise"),
    Variant(
        "lcdp",
        ("scheme.sigma_cdp=0.0236", "scheme.rounds=6"),
        "with the central noise on the sum, as cdp has it (1.18/50)",
    ),
    Variant(
        "component",
        ("scheme.sigma=0.355", "scheme.epsilon=1e15", "scheme.rounds=6"),
        "without the factor √M (26/√5370)",
    ),
    Variant(
        "component", ("scheme.sigma=1e-4", "scheme.epsilon=1e15", "scheme.rounds=8"), "with noise that lets it train"
    ),
    Variant(
        "component",
        ("scheme.reading=code", "scheme.sigma=22", "scheme.epsilon=1e15", "scheme.rounds=8"),
        "as its authors' code has it, σ0 22",
    ),
    Variant("fed-cdp", ("scheme.sigma=0.5",), "with the σ of its training file"),
    Variant("fed-sdp", ("scheme.sigma=0.5",), "with the σ of its training file"),
    Variant("ldp-fl", ("scheme.epsilon=4",), "at ε = 4"),
    Variant("adap-dpfl", ("scheme.threshold=constant",), "with a constant clip: Adam's steps are the same"),
    Variant("iteration-laplace", ("scheme.epsilon=1e6",), "without noise"),
    Variant("iteration-gaussian", ("scheme.order=2",), "with the L2 clip that the proof has"),
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a training left: the figures of its finite rounds, whether it diverged, the best party's figures at the end
    (decentralised only), and the ε rows of its planned ledger.
    """

    experiment: Experiment
    rounds: list[Figures]
    diverged: bool
    best_party: Figures | None
    claim: Epsilon | None
    proven: Epsilon


def run(name: str, changed: Sequence[str]) -> Outcome:
    path = EXAMPLES / f"{name}.toml"
    made = experiment.build(read_config(path, changed), path.parent)
    records: list[Figures] = []
    finite: list[bool] = []

    def note(_: int, record: RoundRecord) -> None:
        finite.append(record.finite)
        if record.finite:
            records.append(record.figures)

    federation = made.federation()
    state = run_many([federation], on_round=note)[0]
    parties = (
        []
        if made.scheme.topology.central
        else [evaluate(federation, State(state.round, {p: m})) for p, m in state.models.items()]
    )
    best = max(parties, key=lambda figures: figures["test_accuracy"], default=None)
    return Outcome(made, records, not all(finite), best, *epsilons(made))


def epsilons(made: Experiment) -> tuple[Epsilon | None, Epsilon]:
    """The row of the claim, and the row of the server (the peer, where there is none) for a client zeroed out."""
    ledger, claim, delta = planned_ledger(made), made.claim, made.config.audit.delta
    observer = Observer("server" if made.scheme.topology.central else "peer")
    (proven,) = rows(ledger, None, delta, [observer], ["client"], ["zero_out"])
    if claim is None:
        return None, proven
    (claimed,) = rows(ledger, claim, delta, [claim.observer], [claim.unit], [claim.adjacency])
    return claimed, proven


# --- the page ---


def score(outcome: Outcome, figures: Figures) -> str:
    """Accuracy in percent; for regression the mean squared error (the loss is half of it)."""
    if outcome.experiment.data.classes:
        return f"{100 * figures['test_accuracy']:.1f} %"
    return f"MSE {2 * figures['test_loss']:.1f}"


def result(outcome: Outcome) -> list[str]:
    """Cells: final, best (round), lowest test loss (round). Rounds are counted from 1 to the last."""
    done = outcome.rounds
    stopped = f"diverged in round {len(done) + 1}" if outcome.diverged else ""
    if not done:
        return [stopped, "–", "–"]
    order = (lambda f: f["test_accuracy"]) if outcome.experiment.data.classes else (lambda f: -f["test_loss"])
    best, lowest = (
        max(range(len(done)), key=lambda t: order(done[t])),
        min(range(len(done)), key=lambda t: done[t]["test_loss"]),
    )
    final = [score(outcome, done[-1]), stopped or f"after {len(done)} rounds"]
    if outcome.best_party is not None:
        final.append(f"best party {score(outcome, outcome.best_party)}")
    return [
        "; ".join(final),
        f"{score(outcome, done[best])} ({best + 1})",
        f"{done[lowest]['test_loss']:.3g} ({lowest + 1})",
    ]


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == inf:
        return "∞"
    return f"{value:.3g}" if value < 1e4 else f"{value:.1e}"


def pricing(row: Epsilon) -> str:
    """How a row without a claim is priced: the accountant and what it composes, or every reason why there is none."""
    if row.proven == inf:
        return " ".join(row.notes)
    return f"{times(row.releases or 0, 'draw')} of noise, {row.accountant}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)]


def page(found: Sequence[tuple[Row, Outcome]], varied: Sequence[tuple[Variant, Outcome]]) -> str:
    """The three tables."""
    utility, privacy = [], []
    for row, outcome in found:
        link = f"[{row.name}](../../examples/{row.name}.toml)"
        utility.append([link, row.paper, row.here, *result(outcome), row.published, row.why])
        claim, proven = outcome.claim, outcome.proven
        place = "–" if claim is None else f"{claim.observer}, {claim.unit}, {claim.adjacency}"
        privacy.append(
            [
                link,
                f"{outcome.experiment.config.audit.delta:g}",
                place,
                *(["–"] * 2 if claim is None else [number(claim.claimed), number(claim.proven)]),
                number(proven.proven) + (" (peer)" if proven.observer == "peer" else ""),
                pricing(proven),
                f"`audit train examples/{row.name}.toml -o setup`",
            ]
        )
    lines = ["## Accuracy", ""]
    lines += table(
        [
            "scheme",
            "paper's setting",
            "here",
            "final",
            "best (round)",
            "lowest test loss (round)",
            "paper",
            "why they differ",
        ],
        utility,
    )
    lines += ["", "## ε", ""]
    head = [
        "scheme",
        "δ",
        "claimed for",
        "claimed ε",
        "proven ε there",
        "proven ε: server, client, zero_out",
        "how it is priced",
        "command",
    ]
    lines += table(head, privacy)
    if varied:
        body = [
            [f"`audit train examples/{v.name}.toml -o setup --set {' --set '.join(v.changed)}`", v.asks, *result(o)]
            for v, o in varied
        ]
        lines += ["", "## One thing changed", ""]
        lines += table(["config", "what is asked", "final", "best (round)", "lowest test loss (round)"], body)
    return "\n".join(lines) + "\n"


def write(tables: str) -> None:
    """The tables between their marks in the page; all other text stays."""
    old = (
        PAGE.read_text(encoding="utf-8")
        if PAGE.exists()
        else f"# The schemes at their papers' settings\n\n{BEGIN}\n{END}\n"
    )
    before, mark, rest = old.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        sys.exit(f"{PAGE} has lost the marks {BEGIN!r} and {END!r}, between which the tables go")
    write_bytes(PAGE, f"{before}{BEGIN}\n\n{tables}\n{END}{after}".encode())


def load_once() -> None:
    """Let all configs share one copy of a data set."""
    load = experiment.load
    loaded: dict[str, Dataset] = {}

    def remembered(name: str, **how: Any) -> Dataset:
        key = json.dumps([name, how], sort_keys=True)
        if key not in loaded:
            loaded[key] = load(name, **how)
        return loaded[key]

    experiment.load = remembered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data-root",
        type=Path,
        help="folder that holds FashionMNIST/ and lending_club/ (default: the configs' own root)",
    )
    parser.add_argument("--only", choices=[row.name for row in ROWS], help="one scheme; prints and writes nothing")
    parser.add_argument(
        "--quick", action="store_true", help="two rounds each, to see that everything runs; prints and writes nothing"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_once()
    root = () if options.data_root is None else (f"data.root={json.dumps(str(options.data_root.resolve()))}",)
    quick = ("scheme.rounds=2",) if options.quick else ()

    def timed(row: Row | Variant, changed: tuple[str, ...]) -> Outcome:
        started = time.process_time()
        outcome = run(row.name, (*changed, *root, *quick))
        print(
            f"{row.name} {' '.join(changed)}: {' | '.join(result(outcome))} ({time.process_time() - started:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
        return outcome

    found = [(row, timed(row, ())) for row in ROWS if options.only in (None, row.name)]
    varied = [
        (variant, timed(variant, variant.changed)) for variant in VARIANTS if options.only in (None, variant.name)
    ]
    tables = page(found, varied)
    if options.only or options.quick:
        print(tables)
    else:
        write(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
