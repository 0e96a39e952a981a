"""The claim card in the words of OpenDP's registry of deployments (github opendp/deployments-registry-data,
schemas/deployments-schema.yaml, a JSON schema of Draft 7), as YAML.

The schema knows no ∞, and what is not proven is not written as a number. Addresses of the web are left out, as the
registry's own check asks each for an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from math import inf
from typing import Any
from unicodedata import category, normalize

from ...defenses.terms import Observer
from ..errors import BadInput
from ..results.format import Epsilon
from ..say import words
from ..say.card import NOT_STATED
from ..say.statement import ADJACENCIES_IN_WORDS
from .owner import Owner
from .points import POINTS, ClaimCard, constants, table_of

REQUIRED = (  # of every entry, and known to the owner alone
    "name",
    "data_curators",
    "intended_use",
    "data_product_region",
    "description",
    "publication_date",
    "registry_authors",
)
DIGITS = 4  # of a proven ε, rounded up


def registry_entry(card: ClaimCard) -> dict[str, Any]:
    """The entry as plain values. Raises BadInput where its owner says too little for the registry's lowest tier."""
    owner, results, row = card.owner, card.results, card.judgement.rows.answer
    if missing := [key for key in REQUIRED if getattr(owner, key) is None]:
        raise BadInput(
            f"OpenDP's registry asks for what only the owner knows: give {words.listed(missing)} in --card-from FILE"
        )
    void = card.judgement.proof == "none" or not card.judgement.secret  # contradicted, or the noise is no secret
    proven = None if row is None or void or row.proven in (None, inf) else row
    basic = {key: getattr(owner, key) for key in REQUIRED if key != "registry_authors"}
    basic |= {"data_product_type": "Machine learning model"}
    if owner.data_product_sector:
        basic |= {"data_product_sector": owner.data_product_sector}
    variant, numbers = _guarantee(proven)
    said = {point.key or "epsilon": _lines(point.answered(card)) for point in POINTS}
    rounds, rows = results.setup.rounds, [] if row is None else [row]
    stated = [key for key in ("security", "access_control") if getattr(owner, key)]
    return {
        "url_slug": _slug(str(owner.name)),
        "status": "Draft",
        "tier": _tier(owner, proven),
        "deployment": {
            "basic": basic,
            "dp_variant": {**variant, "data_domain": _data(card), "unprotected_quantities": _public(card)},
            "privacy_loss": {
                **_unit(row),
                "privacy_unit_details": _lines([*map(_worlds, rows), said["unit"]]),
                "privacy_parameters": numbers,
                "privacy_parameters_details": _lines([_which(card), *card.refuted, *card.places]),
            },
            "deployment_model": {
                "model_name": _model(results.epsilon),
                "model_name_details": "Federated: clients train on their own data and send what they learned.",
                "actors": said["trust_model"],
                "release_type": "One release" if rounds == 1 else "Many releases",
                "release_type_details": said["query_model"],
                "data_source_type": "Static",
                "data_source_type_details": "All records are there before the training; none comes in later.",
                "access_type": "Non-interactive",
                "access_type_details": "Nobody asks queries; who sees what of the training is in the actors.",
            },
            "accounting": {
                "post_processing": (
                    "Whatever an observer computes from what it sees, and whatever is done with the model later, costs"
                    " nothing more. An observer who sees less than another one is priced at no more than that one."
                ),
                "composition": _lines([note for row in rows for note in row.notes]),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _lines([constants(card), owner.tuning or NOT_STATED]),
                "mechanisms": _lines([said[key] for key in ("algorithm", "correctness", "side_channels", *stated)]),
                "justification": owner.justification or NOT_STATED,
            },
            "administrative": {"registry_authors": owner.registry_authors},
        },
    }


def registry_yaml(card: ClaimCard) -> str:
    """The entry as the text of a file."""
    return "\n".join(_yaml(registry_entry(card), "")) + "\n"


# --- what it says


def _guarantee(proven: Epsilon | None) -> tuple[dict[str, str], dict[str, float]]:
    """The variant of DP, and its numbers; neither without a proof."""
    if proven is None:
        return {}, {}
    epsilon = {"epsilon": _up(proven.proven)}
    if not proven.delta:
        return {"variant_name": "Pure DP"}, epsilon
    return {"variant_name": "Approximate DP"}, {**epsilon, "delta": proven.delta}


def _tier(owner: Owner, proven: Epsilon | None) -> int:
    if proven is None:
        return 1
    if owner.tuning and owner.justification:
        return 3
    return 2


def _unit(row: Epsilon | None) -> dict[str, str]:
    if row is None:
        return {}
    return {"privacy_unit": f"{row.unit.capitalize()}-level"}


def _up(value: float | None) -> float:
    """
    >>> _up(519.6981942517276), _up(8.0), _up(1.23411e-7)
    (519.7, 8.0, 1.235e-07)
    """
    exact = Decimal(repr(float(value or 0)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - DIGITS + 1), ROUND_CEILING))


def _slug(name: str) -> str:
    """
    >>> _slug("Spanish next word, 2022")
    'spanish-next-word-2022'
    """
    plain = normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain)) or "deployment"


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(filter(None, texts)) or NOT_STATED


def _worlds(row: Epsilon) -> str:
    it = "a record"
    if row.unit == "client":
        it = "a client"
    return f"Adjacent: {ADJACENCIES_IN_WORDS[row.adjacency].format(it=it)}."


def _which(card: ClaimCard) -> str:
    row = card.judgement.rows.answer
    if row is None or row.proven is None:
        return "No ε was priced, so none is given."
    place = f"towards {words.observer(row.observer)}, per {row.unit}, {row.adjacency}"
    if row.proven == inf:
        return f"No finite ε is proven {place}, so none is given (ε = ∞)."
    return f"The parameters are what is proven {place}, rounded up; not what is claimed."


def _model(rows: Sequence[Epsilon]) -> str:
    """Local where something is proven towards whoever receives uploads, who then need not be trusted; Central where
    only towards those who see what was made of them.
    """
    finite = [Observer.parse(row.observer) for row in rows if row.finite]
    if not finite:
        return "Federated"
    if all(observer.sees_merged_only for observer in finite):
        return "Central"
    return "Local"


def _data(card: ClaimCard) -> str:
    setup = card.results.setup
    sizes = ", ".join(f"{count} {name}" for name, count in table_of(setup.data, "sizes").items())
    known = [f"{key}: {setup.data[key]}" for key in ("name", "source", "licence") if setup.data.get(key)]
    stated = card.owner.data_collection
    return _lines([*known, f"records: {sizes}" if sizes else "", f"The owner states: “{stated}”" if stated else ""])


def _public(card: ClaimCard) -> str:
    """What everybody is taken to know, whatever ε says."""
    return _lines(
        [
            "How many clients and records there are, who takes part where an observer sees messages, and their sizes.",
            "The config: rounds, clip, noise, learning rates, the model's start, the split and the seed.",
            constants(card),
            "Losses and norms of the training, in the setup's auditor/ and in results, which are not to be published.",
        ]
    )


# --- YAML


def _yaml(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Lines of a mapping of texts, numbers, lists of texts and such mappings. A text is quoted as JSON quotes it, which
    YAML reads alike, or, of several lines, a block; so nothing that it says is taken for YAML.
    """
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{key}:" if item else f"{indent}{key}: {{}}"
            yield from _yaml(item, f"{indent}  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_quoted(each)}" for each in item)
        elif isinstance(item, str) and "\n" in item and _block(item):
            yield f"{indent}{key}: |-"
            yield from (f"{indent}  {line}".rstrip() for line in item.split("\n"))
        else:
            yield f"{indent}{key}: {_quoted(item) if isinstance(item, str) else _number(item)}"


def _quoted(text: str) -> str:
    """In double quotes; what cannot be seen by its number."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(sign if _seen(sign) else f"\\U{ord(sign):08x}" for sign in quoted)


def _block(text: str) -> bool:
    """Whether a block holds it as it is: lines that can be seen, none of which begins or ends with a space."""
    return all(line == line.strip() and all(map(_seen, line)) for line in text.split("\n")) and text == text.strip()


def _seen(sign: str) -> bool:
    return category(sign)[0] != "C" and category(sign) not in ("Zl", "Zp")


def _number(value: float) -> str:
    """YAML 1.1, which the registry reads, takes 1e-05 for a text.

    >>> _number(1e-5), _number(2), _number(519.7)
    ('1.0e-05', '2', '519.7')
    """
    text = json.dumps(value)
    if "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
