"""What a model is good for, in words."""

from __future__ import annotations

from ...metrics.intervals import clopper_pearson_interval
from ...metrics.membership import auc_interval
from ..results.format import AuditedSetup
from .words import MISSING, at_least, at_most, between, number, percent, times

UNEQUAL = 1.5  # times an equal share, as three of four of two classes; 300 test records of ten equal classes reach 1.3


def without_noise(accuracy: float | None) -> str:
    """What stands beside the accuracy of a setting with noise: that of the same training without.

    >>> without_noise(None), without_noise(0.75).replace("\N{NO-BREAK SPACE}", " ")
    ('without noise not measured', 'without noise 75 %')
    """
    return f"without noise {'not measured' if accuracy is None else percent(accuracy, 3)}"


def accuracy_said(setup: AuditedSetup, *more: str) -> str:
    """The accuracy on test records, with its 95 % interval and what guessing gets, each where it is known, and more.

    >>> known = {"digest": "", "scheme": "ldp", "test_accuracy": 0.71, "data": {"classes": 10, "sizes": {"test": 300}}}
    >>> accuracy_said(AuditedSetup(**known)).replace("\N{NO-BREAK SPACE}", " ")
    '71 % (65 to 77 % on 300 test records; guessing one of 10 classes gives 10 %)'
    >>> accuracy_said(AuditedSetup(**known, majority_accuracy=0.1234)).replace("\N{NO-BREAK SPACE}", " ")
    '71 % (65 to 77 % on 300 test records; always guessing the most frequent class gives 12.3 %)'
    """
    if setup.test_accuracy is None:
        return MISSING
    beside = []
    if (interval := accuracy_interval(setup)) is not None:
        beside.append(f"{between(interval)} on {times(setup.test_records or 0, 'test record')}")
    if (guessing := setup.guessing_accuracy) is not None:
        guess = f"guessing one of {round(1 / guessing)} classes"
        if setup.majority_accuracy is not None:
            guess = "always guessing the most frequent class"
        beside.append(f"{guess} gives {percent(guessing, 3)}")
    beside += filter(None, (beyond_accuracy(setup), *more))
    return percent(setup.test_accuracy, 3) + (f" ({'; '.join(beside)})" if beside else "")


def beyond_accuracy(setup: AuditedSetup) -> str:
    """What an accuracy hides: where one class is frequent, the accuracy balanced over classes; of two classes the AUC.

    >>> known = {"digest": "", "scheme": "", "majority_accuracy": 0.76, "balanced_accuracy": 0.7, "test_auc": 0.84}
    >>> data = {"classes": 2, "sizes": {"test": 480}}
    >>> beyond_accuracy(AuditedSetup(**known, data=data)).replace("\N{NO-BREAK SPACE}", " ")
    'balanced over classes 70 %; AUC 0.84, 0.79 to 0.88'
    """
    return beyond_said(setup.balanced_accuracy if unequal(setup) else None, setup.test_auc, auc_limits(setup))


def unequal(setup: AuditedSetup) -> bool:
    """Whether one class is known to be so frequent that an accuracy hides how the others fare."""
    return (setup.majority_accuracy or 0.0) * (setup.data.get("classes") or 0) >= UNEQUAL


def beyond_said(balanced: float | None, area: float | None, limits: tuple[float, float] | None) -> str:
    """balanced: None where classes are about equal. area: under the ROC curve of two classes, None of more. limits: of
    the area.
    """
    known = []
    if balanced is not None:
        known.append(f"balanced over classes {percent(balanced, 3)}")
    if area is not None:
        if limits is None:
            interval = ""
        else:
            interval = f", {at_least(limits[0], 2)} to {at_most(limits[1], 2)}"
        known.append(f"AUC {number(area, 2)}{interval}")
    return "; ".join(known)


def accuracy_interval(setup: AuditedSetup) -> tuple[float, float] | None:
    """95 % Clopper–Pearson limits of the accuracy; None where accuracy or number of test records is unknown."""
    n = setup.test_records
    if setup.test_accuracy is None or n is None:
        return None
    return clopper_pearson_interval(round(setup.test_accuracy * n), n)


def auc_limits(setup: AuditedSetup) -> tuple[float, float] | None:
    """95 % of the AUC; None where it or the number of test records is unknown."""
    if setup.test_auc is None or setup.test_records is None:
        return None
    return area_interval(setup.test_auc, setup.test_records, setup.guessing_accuracy)


def area_interval(area: float, records: int, frequent: float | None) -> tuple[float, float]:
    """95 % of an AUC on test records. frequent: the share of them that are of the larger class."""
    larger = round((frequent or 0.5) * records)
    return auc_interval(area, max(1, records - larger), max(1, larger))


def useless_said(
    accuracy: float | None,
    limits: tuple[float, float] | None,
    guessing: float | None,
    of_area: tuple[float, float] | None = None,
) -> str:
    """That a model is no better than none, in a sentence; "" where its accuracy's limits lie above what a guess gets,
    or those of its AUC (`of_area`) above that of a constant, or where accuracy or guess is unknown.

    >>> useless_said(0.72, (0.71, 0.73), 0.761).replace("\N{NO-BREAK SPACE}", " ")
    'The model is worse than no model: it has 72 % of the test records right (71 to 73 %), guessing alone 76.1 %.'
    >>> useless_said(0.77, (0.75, 0.79), 0.761).partition(":")[0], useless_said(0.8, (0.78, 0.82), 0.761)
    ('The model is not shown to be better than no model', '')
    >>> useless_said(0.77, (0.75, 0.79), 0.761, of_area=(0.81, 0.88))
    ''
    """
    if accuracy is None or limits is None or guessing is None or limits[0] > guessing:
        return ""
    if of_area is not None and of_area[0] > 0.5:
        return ""
    compared = "not shown to be better than"
    if limits[1] < guessing:
        compared = "worse than"
    right = f"{percent(accuracy, 3)} of the test records right"
    guess = percent(guessing, 3)
    return f"The model is {compared} no model: it has {right} ({between(limits)}), guessing alone {guess}."


def only_ranks_said(
    accuracy: float | None,
    limits: tuple[float, float] | None,
    guessing: float | None,
    of_area: tuple[float, float] | None,
) -> str:
    """That a model answers no better than a constant, though its scores are of use, in a sentence; "" where it does, or
    where they are not. Arguments as of `useless_said`.

    >>> print(only_ranks_said(0.77, (0.75, 0.79), 0.761, (0.81, 0.88)).replace("\N{NO-BREAK SPACE}", " "))
    The model ranks records (AUC at least 0.81), but is not shown to be right more often (77 %) than one fixed answer,
    the most frequent class (76.1 %).
    >>> only_ranks_said(0.8, (0.78, 0.82), 0.761, (0.81, 0.88)), only_ranks_said(0.77, (0.75, 0.79), 0.761, None)
    ('', '')
    """
    if accuracy is None or limits is None or guessing is None or limits[0] > guessing:
        return ""
    if of_area is None or of_area[0] <= 0.5:
        return ""
    return (
        f"The model ranks records (AUC at least {at_least(of_area[0], 2)}), but is not shown to be right more often"
        f" ({percent(accuracy, 3)}) than one fixed answer, the most frequent class ({percent(guessing, 3)})."
    )


def untrained(without_noise: bool) -> str:
    """That every model only guesses. without_noise: whether one of them was trained so."""
    if without_noise:
        return "No better than guessing: the model learned nothing yet, so its accuracy says nothing of the noise."
    return (
        "No better than guessing: the model learned nothing yet, or the noise keeps it from learning. A training"
        " without noise tells which."
    )


def useless(setup: AuditedSetup) -> str:
    """`useless_said` of what was audited.

    >>> data = {"classes": 10, "sizes": {"test": 300}}
    >>> setups = [AuditedSetup(digest="", scheme="ldp", test_accuracy=a, data=data) for a in (0.12, 0.3)]
    >>> [bool(useless(setup)) for setup in setups]
    [True, False]
    """
    return useless_said(setup.test_accuracy, accuracy_interval(setup), setup.guessing_accuracy, auc_limits(setup))


def only_ranks(setup: AuditedSetup) -> str:
    """`only_ranks_said` of what was audited."""
    return only_ranks_said(setup.test_accuracy, accuracy_interval(setup), setup.guessing_accuracy, auc_limits(setup))
