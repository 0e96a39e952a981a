"""The lines of a statement for a board: what was asked, what holds, who is covered, and what nobody looked at."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf

from scipy.special import ndtr, ndtri

from ..results.checks import USEFUL_EPSILON
from ..results.format import Epsilon
from .words import at_most, listed, number, observer, percent_at_most, terms

FALSE_ALARMS = 0.01  # of an attacker who may accuse one innocent person in a hundred
NOT_COVERED = "not covered"
NOBODY = f"Nobody: no ε of {USEFUL_EPSILON:g} or less is proven."
SPENT_APART = (
    "The last of these does not hold here, as the same records were used before this training: towards whoever saw that"
    " too, only the sum of both ε holds."
)
PEOPLE = {"client": "one client with all its records", "record": "one record; a person with several is protected less"}
# A line of the statement beside what asks for it; "" where the document, as far as it was read, does not. Of the
# template the questions of steps 1 to 3 were read, of the other steps the headings.
ASKED = (
    (
        "Answer",
        "privacy loss ε, and what undermines it",
        "likelihood of extracting training data",
        "step 5: identify and assess risks",
    ),
    ("Accuracy", "utility", "", "step 4: assess necessity and proportionality"),
    (
        "What an attacker got",
        "correctness: tests",
        "tests against membership inference, inversion and reconstruction",
        "step 5: identify and assess risks",
    ),
    (
        "What any attack can do",
        "privacy loss ε",
        "all means reasonably likely to be used",
        "step 5; step 6: identify measures to reduce risk",
    ),
    ("Who is covered", "unit of privacy", "", "step 2: how many individuals are affected"),
    (
        "What has to hold",
        "trust model, side channels, query model",
        "context of the release and who has access",
        "step 2: whether data is shared, and with whom",
    ),
    (
        "Purpose, owner, review",
        "security, access control, data collection: not covered",
        "documentation",
        "step 1: what the project aims at; step 7: sign off and record outcomes",
    ),
    ("no line of this statement", "–", "–", "step 3: consultation process"),
)
SOURCES = ("line", "NIST SP 800-226 (2025)", "EDPB Opinion 28/2024", "ICO sample DPIA template (2018)")


def most_recognised(row: Epsilon) -> float:
    """The largest true positive rate that the row's proof allows at `FALSE_ALARMS`: on the curve of its Gaussian (Dong,
    Roth and Su 2019, Definition 2.6), else by its (ε, δ), as `recognised` has it.

    >>> most_recognised(Epsilon(observer="server", unit="record", adjacency="zero_out", proven=inf))
    1.0
    """
    if row.mu is not None:
        return float(ndtr(row.mu + ndtri(FALSE_ALARMS)))
    return min(most_recognised_at(epsilon, delta) for delta, epsilon in row.points)


def most_recognised_at(epsilon: float, delta: float) -> float:
    """The largest true positive rate that (ε, δ) allows at `FALSE_ALARMS` (Wasserman and Zhou 2010).

    >>> round(most_recognised_at(0.5, 0.0), 4), most_recognised_at(inf, 0.0)
    (0.0165, 1.0)
    """
    factor = exp(min(epsilon, 700.0))
    return min(1.0, factor * FALSE_ALARMS + delta, 1 - (1 - FALSE_ALARMS - delta) / factor)


def covered(unit: str) -> str:
    return f"{unit.capitalize()}: {PEOPLE[unit]}."


def declared(stated: Sequence[str]) -> str:
    return f"Its owner declares, and nobody checked: {listed(list(stated))}."


def proof_line(row: Epsilon) -> str:
    """A proven ε, and what it means for one attacker."""
    if row.proven is None or row.proven == inf:
        return f"Nothing is proven per {row.unit} towards {observer(row.observer)} ({terms(row)})."
    bound = f"Per {row.unit}, towards {observer(row.observer)} ({terms(row)}): ε is at most {at_most(row.proven)}"
    if row.proven > USEFUL_EPSILON:
        return f"{bound}, which promises nothing."
    reached = percent_at_most(most_recognised(row))
    return (
        f"{bound}. Whoever wrongly accuses 1 in 100 recognises at most {reached} of those who took part; a guess"
        " recognises 1 %."
    )


def people_line(unit: str, people: int, held: int | None, share: float) -> str:
    """How many people that is, of so many in the training.

    Args:
        unit: of the proof. held: records, or clients, of the setup that was audited. share: of people, that may be
            recognised (`most_recognised`).
    """
    beyond = ""
    if held is not None and people > held:
        beyond = f" The audited setup trained on {held:,} {unit}s, so ε is of {held:,} people at most."
    elif held is not None and people < held and unit == "record":
        beyond = (
            f" The audited setup trained on {held:,} records, so some people have several: of them it does not hold."
        )
    return (
        f"Of {people:,} people in the training, that attacker recognises at most {at_most(share * people)} on average;"
        f" a guess recognises {number(FALSE_ALARMS * people)}. It holds if each person is one {unit}." + beyond
    )


def spent_too(epsilon: float, delta: float, share: float) -> str:
    """Of a training and of an earlier use of the same records. epsilon, delta: of both. share: as above."""
    return (
        f"Towards whoever saw the earlier use of these records too, ε is at most {at_most(epsilon)} (δ ="
        f" {number(delta)}), and that attacker recognises at most {percent_at_most(share)}."
    )
