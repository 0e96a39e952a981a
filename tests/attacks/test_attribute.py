"""A hidden column of a table's rows, out of messages: told of members, not of others, and never from what it was."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import erf, exp, sqrt
from pathlib import Path

import pytest
import torch
from command import call
from configs import small_config
from dpfl_audit.attacks.base import GuessedValues, Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.membership import AttributeInference
from dpfl_audit.attacks.membership.hidden_column import hidden_column
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.scoring.limits import STEPS, Limits
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.columns import TableColumn
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.metrics.attribute import advantage
from messages import flat, gradient, view_of, with_candidates
from torch import Tensor, nn
from torch.nn import functional as F

WORDS = ("a", "b", "c", "d")
COLUMNS = (TableColumn("x"), TableColumn("word", WORDS), *(TableColumn(f"y{k}") for k in range(16)))
FEATURES = sum(column.width for column in COLUMNS)
MEMBERS = 12


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Records whose word no other column tells, and their labels, which are coins."""
    rng = torch.Generator().manual_seed(seed)
    parts = torch.randn(n, FEATURES, generator=rng)
    parts[:, 1:6] = F.one_hot(torch.randint(4, (n,), generator=rng), 5).float()
    return parts, torch.randint(2, (n,), generator=rng)


def network(seed: int, width: int) -> nn.Module:
    mean, std = [0.0] * FEATURES, [1.0] * FEATURES
    return models.build("mlp", input_shape=(FEATURES,), classes=2, mean=mean, std=std, seed=seed, widths=[width])


@dataclass(frozen=True, eq=False)
class Sent:
    """One client's message, and who was asked about: the first `MEMBERS` candidates were its records."""

    view: View
    knowledge: Knowledge

    @classmethod
    def of(cls, seed: int, noise_std: float = 0.0, records: bool = True) -> Sent:
        """Of the gradient of its records, or without them, in noise."""
        inputs, targets = rows(5 * MEMBERS, seed)
        auxiliary, of_auxiliary = rows(80, seed + 10_000)
        module = network(seed, 16)
        weights = flat(module)
        value = gradient(module, weights, inputs[:MEMBERS], targets[:MEMBERS])
        noise = torch.randn(len(value), generator=torch.Generator().manual_seed(seed))
        value = value * float(records) + noise_std * noise
        facts = PublicFacts("fedavg", "gradient", "sgd", 0.1, MEMBERS, 1, None, noise_std=noise_std)
        view = view_of(module, value, facts, MEMBERS, (FEATURES,), 2, columns=COLUMNS)
        return cls(view, Knowledge({}, auxiliary, of_auxiliary, inputs, targets, torch.arange(len(inputs))))

    def guessed(self, attack: AttributeInference) -> GuessedValues:
        (part,) = attack.parts(self.view, self.knowledge)
        return attack.run_part(part, self.view, self.knowledge, 0)

    def right(self, attack: AttributeInference) -> Tensor:
        found = self.guessed(attack)
        hidden = hidden_column(COLUMNS, self.knowledge.auxiliary_inputs, found.column)
        return found.guesses == hidden.read(self.knowledge.candidate_inputs)

    def hiding(self, column: Tensor) -> Sent:
        """With something else in the column's place."""
        inputs = self.knowledge.candidate_inputs.clone()
        inputs[:, 1:6] = column
        return replace(self, knowledge=replace(self.knowledge, candidate_inputs=inputs))


def pooled(sent: Sequence[Sent], attack: AttributeInference) -> tuple[Tensor, Tensor]:
    right = [one.right(attack) for one in sent]
    return torch.cat([r[:MEMBERS] for r in right]), torch.cat([r[MEMBERS:] for r in right])


@pytest.mark.parametrize("by", ["", "cosine", "projection", "sequence"])
def test_a_gradient_of_few_rows_tells_their_word_and_nobody_elses(by) -> None:
    inside, outside = pooled([Sent.of(seed) for seed in range(6)], AttributeInference("word", by))
    found = advantage(inside, outside)
    assert found.others < 0.4 < found.members and found.p_value < 1e-3
    if by != "cosine":  # twelve rows span twelve directions, in which no other row lies
        assert found.members > 0.9


def test_so_does_a_number_by_its_bin() -> None:
    inside, outside = pooled([Sent.of(seed) for seed in range(4)], AttributeInference("y3"))
    assert advantage(inside, outside).p_value < 1e-6 and 0.03 < float(outside.double().mean()) < 0.3


def test_noise_alone_tells_nothing() -> None:
    """p ≤ .05 in at most one null run in twenty."""
    attack = AttributeInference("word")
    p_values = []
    for seed in range(60):
        right = Sent.of(seed, noise_std=1.0, records=False).right(attack)
        p_values.append(advantage(right[:MEMBERS], right[MEMBERS:]).p_value)
    assert sum(p <= 0.05 for p in p_values) <= 3


def test_the_guess_never_hangs_on_what_the_column_was() -> None:
    sent = Sent.of(1)
    shifted = sent.hiding(sent.knowledge.candidate_inputs[:, 1:6].roll(1, 1))
    nothing = sent.hiding(torch.full((5 * MEMBERS, 5), float("nan")))
    for by in ("", "cosine", "sequence"):
        attack = AttributeInference("word", by)
        for other in (shifted, nothing):
            assert torch.equal(sent.guessed(attack).guesses, other.guessed(attack).guesses)


def test_the_order_of_the_candidates_says_nothing() -> None:
    sent, order = Sent.of(2), torch.randperm(5 * MEMBERS, generator=torch.Generator().manual_seed(0))
    other = replace(sent, knowledge=with_candidates(sent.knowledge, order))
    attack = AttributeInference("word")
    assert torch.equal(sent.guessed(attack).guesses[order], other.guessed(attack).guesses)


def test_a_published_model_that_overfits_tells_it_by_its_loss() -> None:
    """Labels are coins, so whatever it knows of a row it learned by heart. Only `x` and the word tell rows apart."""
    insides, outsides = [], []
    for seed in range(8):
        sent = Sent.of(seed)
        sent.knowledge.candidate_inputs[:, 6:] = 0
        k, module = sent.knowledge, network(seed, 64)
        optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
        for _ in range(100):
            optimiser.zero_grad()
            F.cross_entropy(module(k.candidate_inputs[:MEMBERS]), k.candidate_targets[:MEMBERS]).backward()
            optimiser.step()
        weights = flat(module)
        message = Seen("b", 0, "server", ("0",), "weights", 0, lambda w=weights: w, True)
        view = replace(sent.view, messages=(message,), module=module, layout=Layout.of(module), observer="model")
        own = replace(sent, view=view)
        assert own.guessed(AttributeInference("word")).sender == ""
        right = own.right(AttributeInference("word"))
        insides.append(right[:MEMBERS])
        outsides.append(right[MEMBERS:])
    assert advantage(torch.cat(insides), torch.cat(outsides)).p_value < 0.01


# --- the column and its values ---


def test_a_words_values_are_those_of_auxiliary_records_the_most_frequent_first() -> None:
    words = torch.tensor([1, 1, 1, 3, 3, 0])
    auxiliary = torch.zeros(6, FEATURES)
    auxiliary[:, 1:6] = F.one_hot(words, 5).float()
    hidden = hidden_column(COLUMNS, auxiliary, "word")
    assert hidden.names == ("b", "d", "a")
    of_others = torch.zeros(2, FEATURES)
    of_others[0, 2] = of_others[1, 3] = 1
    assert hidden.read(of_others).tolist() == [0, -1]  # "c" is no value that anybody knows of
    every = hidden.variants(of_others).view(2, 3, -1)
    assert torch.equal(every[0], every[1]) and hidden.read(every[0]).tolist() == [0, 1, 2]


def test_a_numbers_values_are_bins_of_auxiliary_records() -> None:
    auxiliary = torch.zeros(100, FEATURES)
    auxiliary[:, 0] = torch.arange(100.0)
    hidden = hidden_column(COLUMNS, auxiliary, "x")
    counts = torch.bincount(hidden.read(auxiliary))
    assert len(hidden.codes) == 10 and counts.min() >= 9
    assert hidden.read(hidden.variants(auxiliary[:1])).tolist() == list(range(10))
    mostly = auxiliary.clone()
    mostly[:80, 0] = 0.0
    assert len(hidden_column(COLUMNS, mostly, "x").codes) == 3  # eight tenths are one value


def test_by_default_the_word_that_is_hardest_to_guess_is_asked_for() -> None:
    even, uneven = TableColumn("even", ("a", "b", "c")), TableColumn("uneven", ("a", "b", "c", "d"))
    records = torch.zeros(40, 1 + even.width + uneven.width)
    records[:, 1:5] = F.one_hot(torch.arange(40) % 3, 4).float()
    records[:, 5:] = F.one_hot((torch.arange(40) - 36).clamp_min(0), 5).float()
    columns = (TableColumn("number"), uneven, even)
    ordered = torch.cat([records[:, :1], records[:, 5:], records[:, 1:5]], 1)
    assert hidden_column(columns, ordered).column.name == "even"
    with pytest.raises(ValueError, match="one value alone"):
        hidden_column((TableColumn("number"),), torch.zeros(5, 1))


def test_what_it_cannot_ask_is_refused() -> None:
    sent = Sent.of(0)
    with pytest.raises(ValueError, match="no such column; did you mean 'word'"):
        AttributeInference("wrod").parts(sent.view, sent.knowledge)
    with pytest.raises(ValueError, match="of a table"):
        AttributeInference().parts(replace(sent.view, columns=()), sent.knowledge)
    none = replace(sent.knowledge, auxiliary_inputs=torch.zeros(0, FEATURES), auxiliary_targets=torch.zeros(0).long())
    with pytest.raises(ValueError, match="auxiliary records"):
        AttributeInference().parts(sent.view, none)


# --- the whole way ---


def table(path: Path) -> Path:
    """600 rows; `copy` says what `word` is, and `ward` is nobody's business but a row's."""
    rng = random.Random(0)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "income", "word", "copy", "ward", "outcome"])
        for _ in range(600):
            word = rng.choice(["p", "q", "r"])
            out.writerow([rng.gauss(0, 1), rng.gauss(0, 1), word, word, rng.choice("stuvw"), int(rng.random() < 0.5)])
    return path


def config(scheme: dict[str, object]) -> str:
    return small_config(
        seed=2,
        claim="none",
        data={"name": "csv", "root": "rows.csv", "target": "outcome", "clients": 8, "samples_per_client": 4},
        model={"options": {"widths": [24]}},
        local={"lr": 0.1, "batch_size": 4},
        scheme={"rounds": 2, **scheme},
        capture={"clients": list(range(8)), "candidates": 160, "auxiliary": 100},
        audit={"observer": "server", "unit": "record"},
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A setup without noise, and one with."""
    home = tmp_path_factory.mktemp("attribute")
    table(home / "rows.csv")
    for name, scheme in {"bare": {"name": "fedavg"}, "noisy": {"name": "ldp", "clip": 1.0, "noise_std": 1.0}}.items():
        (home / f"{name}.toml").write_text(config(scheme))
        assert call("train", home / f"{name}.toml", "-o", home / name, "--quiet") == 0
    return home


def results_of(home: Path, name: str, output: Path, *options: str) -> Results:
    assert call("run", home / name, "-o", output, "--quiet", "--attack", "attribute", *options) == 0
    return Results.read(output)


def test_a_bare_training_tells_a_members_ward_and_the_page_says_so(home: Path, tmp_path: Path) -> None:
    results = results_of(home, "bare", tmp_path / "results")
    (entry,) = results.attacks
    assert entry.kind == "attribute" and entry.variant == "ward" and entry.value("n_members") == 32
    assert entry.value("attribute") > 0.8 > 0.5 > entry.controls["outsiders"]["attribute"]
    assert {"outsiders", "most_frequent", "imputed"} == set(entry.controls)
    assert results.verdict.level == "high"
    assert entry.value("attribute_ceiling") == 1.0
    assert call("report", tmp_path / "results", "-o", tmp_path / "page.html", "--quiet") == 0
    assert (tmp_path / "page.html").exists()
    gate = ("--fail-if", "attribute_advantage > .5")
    assert call("run", home / "bare", "-o", tmp_path / "results", "--quiet", "--attack", "attribute", *gate) == 1


def test_what_other_columns_tell_is_told_of_everybody_by_an_imputer(home: Path, tmp_path: Path) -> None:
    results = results_of(home, "bare", tmp_path / "results", "--set", "attribute.column=word")
    assert results.attacks[0].controls["imputed"]["attribute"] == 1.0


def test_under_noise_it_stays_below_the_ceiling_of_the_proof(home: Path, tmp_path: Path) -> None:
    """Two rounds of noise 1 over a distance of 2C: μ = 2√2, and no test has TPR − FPR above 2Φ(μ/2) − 1."""
    results = results_of(home, "noisy", tmp_path / "results")
    (entry,) = results.attacks
    assert results.verdict.level in ("none found", "moderate")
    best = erf(sqrt(2) / sqrt(2))  # 2Φ(√2) − 1
    ceiling = entry.value("attribute_ceiling")
    assert best <= ceiling <= best + 1 / STEPS and entry.value("attribute_advantage") < ceiling


def test_the_ceiling_of_an_epsilon_is_that_of_randomised_response(home: Path, monkeypatch) -> None:
    """(e^ε − 1 + 2δ)/(e^ε + 1), the total variation that (ε, δ) allows (Kairouz, Oh and Viswanath 2015)."""
    ledger = Auditor(open_setup(home / "noisy")).ledger
    assert ledger is not None
    epsilon, delta = 1.2, 0.01

    def tpr(views, observer, adjacency, kappa):
        assert adjacency == "replace_one"
        return min(1.0, exp(epsilon) * kappa + delta, 1 - exp(-epsilon) * (1 - delta - kappa))

    monkeypatch.setattr("dpfl_audit.audit.scoring.limits._ceiling", tpr)
    most = (exp(epsilon) - 1 + 2 * delta) / (exp(epsilon) + 1)
    assert most <= Limits(ledger, 1.0).advantage(Observer.parse("server")) <= most + 1 / STEPS


def test_a_wrong_column_and_a_setup_without_columns_end_in_a_sentence(home: Path, tmp_path: Path, capsys) -> None:
    for options in (("--set", "attribute.column=wrad"), ("--set", "attribute.by=luck")):
        assert call("run", home / "bare", "-o", tmp_path / "no", "--quiet", "--attack", "attribute", *options) == 2
    (tmp_path / "digits.toml").write_text(small_config(claim="none", capture={"auxiliary": 20, "candidates": 20}))
    assert call("train", tmp_path / "digits.toml", "-o", tmp_path / "digits", "--quiet") == 0
    capsys.readouterr()
    assert call("run", tmp_path / "digits", "-o", tmp_path / "no", "--quiet", "--attack", "attribute") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and not (tmp_path / "no").exists()
