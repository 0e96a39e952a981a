"""The claim card: every point of NIST's list is answered or not stated, and OpenDP's registry takes its YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command import called
from dpfl_audit.audit.files import plain
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.numbers import Numbers, number_rows
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.report.card import card_markdown, card_text
from dpfl_audit.audit.report.markdown import escaped
from dpfl_audit.audit.report.owner import Owner, read_owner
from dpfl_audit.audit.report.points import ClaimCard, make_card
from dpfl_audit.audit.report.registry import registry_entry, registry_yaml
from dpfl_audit.audit.results.format import Epsilon, Results
from dpfl_audit.audit.results.premises import Premise
from dpfl_audit.audit.say.card import NOT_STATED
from dpfl_audit.audit.say.statement import NO_DRAW, NOT_PRICED, NOTHING, NUMBER_IS_KNOWN, statement
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.planned import planned_ledger
from scipy.stats import binom, norm
from stated import marked, proven_otherwise, published

Maker = Callable[..., Path]
DELTA = 1e-5
NIST = [  # SP 800-226 by the list: ε and unit, utility, bias, algorithm and its correctness, side channels, …
    "Privacy loss ε",
    "Unit of privacy",
    "Utility",
    "Bias",
    "Algorithm",
    "Correctness",
    "Side channels",
    "Query model",
    "Trust model",
    "Security",
    "Access control",
    "Data collection",
]
BASE = {"data": {"name": "digits", "clients": 6, "samples_per_client": 20}, "model": {"name": "logistic"}}
SCHEMES: dict[str, dict[str, Any]] = {
    "ldp": {"rounds": 2, "clip": 0.5, "sigma": 1.0, "share": "gradient"},
    "central-gaussian": {"rounds": 9, "participants": 2, "sampling": "fixed", "clip": 0.5, "noise_multiplier": 2.0},
    "fedavg": {"rounds": 1},
}
OWNER = {
    "name": "Next word, Spanish",
    "data_curators": ["A clinic", "no"],
    "intended_use": "Suggestions",
    "data_product_region": "Spain",
    "data_product_sector": "Healthcare",
    "description": "A model.\n# not a comment: 'quoted' \"twice\"",
    "publication_date": "2026-11-01",
    "registry_authors": ["Somebody"],
}


def planned(scheme: str, clients: int = 6, **changes: Any) -> tuple[list[Epsilon], dict[str, Any]]:
    """Rows as a run writes them, and the config."""
    data, settings = {**BASE["data"], "clients": clients}, {"name": scheme, **SCHEMES[scheme], **changes}
    experiment = build(parse_config({**BASE, "data": data, "scheme": settings}), Path())
    config = experiment.config.model_dump(mode="json")
    table = rows(planned_ledger(experiment), experiment.claim, DELTA, adjacencies=("zero_out",))
    asked = (config["audit"]["observer"], config["audit"]["unit"], config["audit"]["adjacency"])
    return [row.having(asked=(row.observer, row.unit, row.adjacency) == asked) for row in table], config


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, make_results: Maker) -> dict[str, Path]:
    """A RESULTS folder of each scheme, whose ε are the scheme's own."""
    made = {}
    for name in SCHEMES:
        table, config = planned(name)
        setup = {"scheme": name, "name": name, "config": config, "parameters": SCHEMES[name], "noise_key": "secret"}
        if name == "fedavg":
            setup |= {"noise_key": None, "share_clipped": None, "clip_norm": None}
        folder = tmp_path_factory.mktemp(name)
        made[name] = make_results(folder, epsilon=[plain(row.model_dump()) for row in table], n=2, setup=setup)
    return made


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the third level."""
    parts = re.split(r"^### (.*)$", text, flags=re.M)
    return {title: body.strip() for title, body in zip(parts[1::2], parts[2::2])}


# --- NIST's list


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_point_of_nists_list_is_answered_or_not_stated(scheme: str, audited: dict[str, Path]) -> None:
    said = sections(card_markdown(make_card([audited[scheme]])))
    assert list(said) == NIST
    assert all(body.startswith("- ") for body in said.values())
    for title in ("Security", "Access control", "Data collection"):  # no setup knows them
        assert said[title].split("\n")[0] == f"- {NOT_STATED}"
    for title in NIST[:3] + NIST[4:9]:
        assert "Not stated" not in said[title]
    assert ("Not stated" in said["Bias"]) == (scheme == "fedavg")  # nothing was clipped
    assert "Timing:" in said["Side channels"] and " 12.2 " in said["Side channels"]


def test_the_owner_answers_what_the_setup_cannot_know(audited: dict[str, Path]) -> None:
    keys = ("security", "access_control", "data_collection", "bias", "unit")
    card = make_card([audited["ldp"]], Owner.model_validate({key: f"{key}, said" for key in keys}))
    text = card_markdown(card)
    assert all(f"“{key.replace('_', chr(92) + '_')}, said”" in text for key in keys)
    assert "Not stated" not in text


def test_a_published_key_is_a_side_channel(audited: dict[str, Path]) -> None:
    results = Results.read(audited["ldp"])
    said = sections(card_markdown(ClaimCard(published(results), Owner())))["Side channels"]
    assert "Key: published" in said and "Key: secret" not in said


# --- the three numbers


def test_three_numbers_round_to_the_safe_side_and_a_refuted_claim_is_said(
    tmp_path: Path, make_results: Maker, row: Callable[..., dict[str, Any]]
) -> None:
    """4.996 demonstrated is at least 4.99, 5.001 proven at most 5.01; 4.996 > 3 claimed."""
    three = row(unit="client", claimed=3.0, claimed_by="owner", proven=5.001, demonstrated=4.996, confidence=0.95)
    card = make_card([make_results(tmp_path, n=2, epsilon=[three])])
    text = card_markdown(card)
    (place,), (refuted,) = card.places, card.refuted
    assert re.search(r" 3 .* 5\.01.* 4\.99", place) and re.search(r" 3 .* 4\.99", refuted)
    assert escaped(place) in text and f"> {escaped(refuted)}" in text
    assert re.search(r"\| 3 by the owner \| 5\.01 \| – \| 4\.99 \|", text)
    entry = registry_entry(ClaimCard(card.results, Owner.model_validate(OWNER)))["deployment"]["privacy_loss"]
    assert refuted in entry["privacy_parameters_details"]
    assert entry["privacy_parameters"] == {"epsilon": 5.001, "delta": DELTA}


def test_a_claim_that_holds_is_not_refuted(
    tmp_path: Path, make_results: Maker, row: Callable[..., dict[str, Any]]
) -> None:
    held = row(unit="client", claimed=6.0, claimed_by="owner", proven=5.001, demonstrated=4.9, confidence=0.95)
    assert "refuted" not in card_markdown(make_card([make_results(tmp_path, n=2, epsilon=[held])]))


SAME = {"digest": "d" * 64}


def test_of_two_runs_alike_the_lesser_bound_holds(
    tmp_path: Path, make_results: Maker, row: Callable[..., dict[str, Any]]
) -> None:
    """The larger of two would be wrong twice as often; the other run's rows are there as well."""
    one, two = row(demonstrated=2.0, confidence=0.95), row(demonstrated=3.0, confidence=0.95)
    other = row(observer="model", proven=7.0)
    folders = [
        make_results(tmp_path / "a", n=2, epsilon=[one, other], setup=SAME),
        make_results(tmp_path / "b", n=2, quality=0.5, epsilon=[two], setup=SAME),
    ]
    card = make_card(folders)
    assert [(r.observer, r.demonstrated) for r in card.results.epsilon] == [("server", 2.0), ("model", None)]
    assert card.results.epsilon[0].confidence == 0.95 and len(card.results.attacks) == 2
    assert card.runs == 2


# --- in sentences


def test_the_statement_says_levels_adjacencies_and_assumptions() -> None:
    """Gaussian noise of 5 over a sensitivity of 1, nine times, is one of 5/3, and 5/6 where 2C can move; δ(ε) =
    Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) is 1e-5 at ε = 2.4449 for μ = .6, and at 5.4135 for μ = 1.2 (by a root finder).
    """
    table = number_rows(Numbers(1.0, 5.0, rounds=9), None, DELTA, ["client", "record"], ["zero_out", "replace_one"])
    said = statement(table)
    client, record = said[1:3]
    assert re.search(r"\(client level\).* 2\.45 at δ = 10⁻⁵ .*\(zero_out\), with 9 .* 5 times.* 5\.42 ", client)
    assert "(example level)" in record and record.count("5.42") == 2
    assert client.endswith(NO_DRAW) and record.endswith(NO_DRAW)


def test_the_statement_says_what_a_secret_draw_is_worth() -> None:
    """Without it T releases of noise σ are one of σ/√T, whoever was drawn: 7.0514 by a root finder."""
    drawn = Numbers(1.0, 2.0, rounds=9, clients=100, cohort=10, noise_on="sum", sampling="poisson")
    (row,) = number_rows(drawn, None, DELTA, ["client"], ["zero_out"])
    assert row.proven_without_sampling == pytest.approx(gaussian_epsilon(2 / 3, DELTA), rel=1e-9)
    assert row.proven is not None and row.proven < gaussian_epsilon(2 / 3, DELTA) / 4
    assert statement([row])[1].endswith(" 7.06 (zero_out).")


def test_the_number_drawn_by_coins_is_a_secret_that_the_proof_needs() -> None:
    """ "How many take part is no secret" stood beside 1.69, and whoever is told how many were drawn has 2.43."""
    drawn = Numbers(1.0, 1.0, clients=10, cohort=1, noise_on="sum", sampling="poisson")
    (row,) = number_rows(drawn, None, DELTA, ["client"], ["zero_out"])
    assert row.proven is not None and row.proven_without_sampling is not None
    x = np.linspace(-10, 11, 21_001)
    without, there = norm.pdf(x), norm.pdf(x - 1)

    def delta_at(epsilon: float) -> float:
        """Told that k of 10 were drawn, the client is one of them with k/10."""
        pairs = ((binom.pmf(k, 10, 0.1), (1 - k / 10) * without + k / 10 * there) for k in range(11))
        return sum(w * float(np.maximum(p - exp(epsilon) * without, 0).sum()) * 1e-3 for w, p in pairs)

    assert delta_at(row.proven) > 10 * DELTA and delta_at(row.proven_without_sampling) < DELTA
    said = statement([row])
    assert NUMBER_IS_KNOWN not in said[0] and NO_DRAW not in said[1]
    assert NUMBER_IS_KNOWN in statement([proven_otherwise(row, proven=row.proven_without_sampling)])[0]


def test_a_trained_scheme_says_what_its_secret_cohort_is_worth() -> None:
    """Cohorts of 2 of 40, z = 2, nine rounds: whoever knows the cohorts sees one Gaussian of 2/3."""
    table = {(r.observer, r.unit): r for r in planned("central-gaussian", clients=40)[0]}
    open_draw, server = table["downlink", "client"], table["server", "client"]
    assert open_draw.proven_without_sampling == pytest.approx(gaussian_epsilon(2 / 3, DELTA), rel=1e-6)
    assert open_draw.proven is not None and open_draw.proven < gaussian_epsilon(2 / 3, DELTA)
    assert server.proven == inf
    assert all(r.proven_without_sampling is None for r in planned("ldp")[0])


def test_infinity_is_said_plainly() -> None:
    said = statement(planned("fedavg")[0])
    assert "∞" in said[1] and said[1].endswith(NOTHING)
    assert statement([]) == [NOT_PRICED]


def test_the_statement_names_all_that_its_proofs_rest_on(row: Callable[..., dict[str, Any]]) -> None:
    """It left out who colludes in a sum (1.03 there, 3.71 with nine who do), and what an owner declares."""
    rows = [Epsilon(**marked({**row(proven=2.0), "premises": [premise.label]})) for premise in Premise]
    said = statement(rows)
    assert all(premise.value in " ".join(said) for premise in Premise)
    for premise in Premise:
        alone = " ".join(statement([each for each in rows if premise.label not in each.premises]))
        assert premise.value not in alone


def test_audit_epsilon_prints_the_statement(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ("epsilon", "--clip", 1, "--noise-std", 5, "--rounds", 9, "--unit", "client", "--adjacency", "zero_out")
    assert "client level" not in called(capsys, *numbers)[1]
    code, out, _ = called(capsys, *numbers, "--statement")
    assert code == 0 and re.search(r"client level.* 2\.45 ", out)


# --- OpenDP's registry


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def table(required: str = "", **properties: Any) -> dict[str, Any]:
    required_keys = required.split() if required else []
    return {"type": "object", "additionalProperties": False, "required": required_keys, "properties": properties}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
NAMES = {"type": "array", "items": TEXT, "minItems": 1}
# github opendp/deployments-registry-data, schemas/deployments-schema.yaml (JSON schema, Draft 7), without descriptions.
SCHEMA = table(
    "url_slug status tier deployment",
    url_slug=TEXT,
    status=one_of("Draft", "Pending", "Changes Required", "Approved"),
    tier={"type": "integer", "enum": [1, 2, 3]},
    deployment=table(
        "basic administrative",
        basic=table(
            "name data_curators intended_use data_product_type data_product_region description publication_date",
            name=TEXT,
            data_curators=NAMES,
            intended_use=TEXT,
            data_product_type=one_of("Summary statistics", "Machine learning model", "Dataset", "Synthetic data"),
            data_product_region=TEXT,
            data_product_sector=one_of("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
            description=TEXT,
            publication_date={"type": "string", "format": "date"},
        ),
        dp_variant=table(
            variant_name=one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=table(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            privacy_parameters=table(epsilon=NUMBER, delta=NUMBER, rho=NUMBER),
            privacy_parameters_details=TEXT,
        ),
        deployment_model=table(
            model_name=one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            model_name_details=TEXT,
            actors=TEXT,
            release_type=one_of("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=one_of("Static", "Dynamic"),
            data_source_type_details=TEXT,
            access_type=one_of("Interactive", "Non-interactive"),
            access_type_details=TEXT,
        ),
        accounting=table(post_processing=TEXT, composition=TEXT),
        implementation=table(preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, justification=TEXT),
        administrative=table("registry_authors", registry_authors=NAMES),
    ),
)
KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}


def faults(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """What the words of Draft 7 that the schema uses find wrong."""
    assert schema.keys() <= {"type", "enum", "format", "items", "minItems", "properties", "required"} | {
        "additionalProperties"
    }
    if not isinstance(value, KINDS[schema["type"]]):
        yield f"{place}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if schema.get("format") == "date" and date.fromisoformat(value).isoformat() != value:
        yield f"{place}: {value!r} is no date"
    if len(value) < schema.get("minItems", 0) if isinstance(value, list) else False:
        yield f"{place}: too few"
    for item in value if isinstance(value, list) else ():
        yield from faults(item, schema["items"], f"{place}[]")
    if isinstance(value, dict):
        yield from (f"{place}.{key} is unknown" for key in value if key not in schema["properties"])
        yield from (f"{place}.{key} is missing" for key in schema["required"] if key not in value)
        for key in value.keys() & schema["properties"].keys():
            yield from faults(value[key], schema["properties"][key], f"{place}.{key}")


def registered(folder: Path, **more: Any) -> tuple[dict[str, Any], str]:
    card = make_card([folder], Owner.model_validate({**OWNER, **more}))
    return registry_entry(card), registry_yaml(card)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_yaml_is_what_the_registry_takes(scheme: str, audited: dict[str, Path]) -> None:
    entry, text = registered(audited[scheme])
    read = yaml.safe_load(text)
    assert read == entry and list(faults(read, SCHEMA)) == []
    styles = {token.style for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)}
    assert styles == {None, '"', "|"}  # the registry's check refuses folded texts
    assert not re.search(r"https?://", text)  # its check asks every address for an answer


def test_the_schemas_words_find_what_is_wrong(audited: dict[str, Path]) -> None:
    entry, _ = registered(audited["ldp"])
    entry["deployment"]["basic"]["publication_date"] = date(2026, 11, 1)
    entry["deployment"]["dp_variant"]["variant_name"] = "DP"
    entry["tier"], entry["more"] = "2", 1
    del entry["status"]
    assert len(list(faults(entry, SCHEMA))) == 5


@pytest.mark.parametrize(
    ("scheme", "model", "variant", "tier"),
    [
        ("ldp", "Local", "Approximate DP", 2),  # noised before the server sees it
        ("central-gaussian", "Federated", None, 1),  # asked about the server, which sees raw updates
        ("fedavg", "Federated", None, 1),
    ],
)
def test_the_registry_gets_proven_numbers_or_none(
    scheme: str, model: str, variant: str | None, tier: int, audited: dict[str, Path]
) -> None:
    entry, _ = registered(audited[scheme])
    deployment, proven = entry["deployment"], make_card([audited[scheme]]).judgement.rows.answer
    assert proven is not None and proven.observer == "server" and proven.unit == "client" and entry["tier"] == tier
    assert deployment["dp_variant"].get("variant_name") == variant
    numbers = deployment["privacy_loss"]["privacy_parameters"]
    if variant is None:
        assert numbers == {} and "∞" in deployment["privacy_loss"]["privacy_parameters_details"]
    else:
        assert proven.proven is not None
        assert proven.proven <= numbers["epsilon"] < 1.001 * proven.proven and numbers["delta"] == DELTA
    assert deployment["deployment_model"]["model_name"] == ("Central" if scheme == "central-gaussian" else model)


def test_the_highest_tier_needs_the_owners_reasons(audited: dict[str, Path]) -> None:
    assert registered(audited["ldp"], tuning="None.", justification="Because.")[0]["tier"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "2026-01-01",
        "1e5",
        "- a: &b *c !!python/object:os.system {d}",
        "a\n\n  b: |\n# c",
        "“ü”\u00a0\U0001f600",
        "tab\tin",
        "---\n...\n",
    ],
)
def test_a_text_stays_a_text(text: str, audited: dict[str, Path]) -> None:
    owner = Owner(**{**OWNER, "description": text, "data_curators": [text]})
    entry = registry_entry(make_card([audited["ldp"]], owner))
    basic = yaml.safe_load(registry_yaml(make_card([audited["ldp"]], owner)))["deployment"]["basic"]
    assert basic == entry["deployment"]["basic"]
    assert basic["description"].split() == text.split() and basic["data_curators"] == [basic["description"]]


def test_what_cannot_be_seen_is_written_by_its_number(audited: dict[str, Path]) -> None:
    """Results are a stranger's: a name may hold anything that JSON can say."""
    results = Results.read(audited["ldp"])
    odd = "a\x1b[31m\u2028b\u202e\x85\ufeff"
    setup = results.setup.having(data={**results.setup.data, "source": odd, "sizes": [1], "statistics_of": []})
    card = ClaimCard(results.having(setup=setup), Owner.model_validate(OWNER))
    text = registry_yaml(card)
    assert all(sign.isprintable() or sign in "\n\u00a0\u202f" for sign in text)
    assert odd in yaml.safe_load(text)["deployment"]["dp_variant"]["data_domain"]


# --- strangers and mistakes


def test_markdown_escapes_what_strangers_wrote(audited: dict[str, Path]) -> None:
    evil = "<script>x</script> | [a](javascript:b) `c` \n\n# d"
    results = Results.read(audited["ldp"])
    setup = results.setup.having(name=evil, parameters={"a": evil}, versions={evil: evil})
    owner = Owner.model_validate({"security": evil, "intended_use": evil})
    text = card_markdown(ClaimCard(results.having(setup=setup), owner))
    assert "<script" not in text and "\n# d" not in text
    assert not re.search(r"(?<!\\)\[a", text) and not re.search(r"(?<!\\)`c", text)
    assert text.count("\\[a\\](javascript:b)") == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--card", "card.txt"], "ends in .md or .yaml"),
        (["fedavg", "--card", "card.md"], "one setup"),
        (["--card", "owner.toml/card.md"], "cannot be written"),
        (["--card", "folder.md"], "folder.md is a folder; name the file to write"),
        (["-o", "."], ". is a folder; name the file to write"),
        (["--card", "card.yaml"], "give name, data_curators, intended_use"),
        (["--card", "card.md", "-o", "card.md", "--format", "csv"], "named for two files"),
        (["--card", "card.md", "--format", "csv"], "name its file with -o"),
        (["--card-from", "owner.toml"], "--card card.md"),
        (["--card", "card.md", "--statement", "s.pdf"], "ends in .md or .html"),
        (["--card", "card.md", "--card-from", "none.toml"], "there is no file of --card-from"),
        (["--card", "card.md", "--card-from", "bad.toml"], "unknown key 'securty'; did you mean 'security'?"),
        (["--card", "card.md", "--card-from", "day.toml"], "a day is written as 2026-01-31"),
        (["--card", "card.md", "--card-from", "empty.toml"], "nothing is said; leave the key out"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    arguments: list[str],
    said: str,
    audited: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.md").mkdir()
    texts = {"owner": 'bias = "b"', "bad": 'securty = "s"', "day": 'publication_date = "May"', "empty": 'bias = " "'}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    code, out, error = called(capsys, "report", audited["ldp"], *(audited.get(word, word) for word in arguments))
    assert code == 2 and not out and said in error and len(error.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_writes_both_cards(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same results and owner give the same bytes."""
    owner = tmp_path / "owner.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in OWNER.items() if key != "publication_date"]
    owner.write_text("\n".join([*lines, "publication_date = 2026-11-01"]))  # TOML's own date
    assert read_owner(owner).publication_date == "2026-11-01"
    for name in ("card.md", "card.yaml"):
        path = tmp_path / name
        code, out, error = called(capsys, "report", audited["ldp"], "--card", path, "--card-from", owner)
        assert (code, out.strip(), error) == (0, str(path), "")
        first = path.read_bytes()
        assert card_text([audited["ldp"]], path, owner).encode() == first
    assert not (audited["ldp"] / "report.html").exists()


@pytest.mark.parametrize("why", ["contradicted", "published"])
def test_what_is_not_proven_is_no_number_in_the_registry(
    why: str, tmp_path: Path, make_results: Maker, row: Callable[..., dict[str, Any]]
) -> None:
    """A proof that a test contradicts, or whose noise anybody can take off."""
    shown = {"demonstrated": 5.0, "ceiling": 9.0, "confidence": 0.95} if why == "contradicted" else {}
    priced = row(proven=2.0, accountant="closed form", **shown)
    key = {"noise_key": "published"} if why == "published" else {}
    card = make_card([make_results(tmp_path, n=2, quality=0.0, epsilon=[priced], setup=key)], Owner(**OWNER))
    entry = registry_entry(card)
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {} and entry["tier"] == 1
