"""What a study of settings says: its answer, what stands in the way, and what the search itself cost."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..results.checks import USEFUL_EPSILON
from .words import at_most, number, observer

NOTHING_TRAINED = "Nothing was trained, so the search cost the clients nothing."
OPEN_NOISE = ", whose noise is no secret as its key is published,"
SOME_BARE = ", some of them trained without any noise,"
OF_NUMBERS = (
    " A client is a number here: fresh seeds deal the records anew, so of one person, whose records may then be with"
    " several, it says nothing."
)
SCORES = (
    "Accuracies and attack scores of private records are no output of a private mechanism: no ε covers this page. Show"
    " it to nobody who may not see the records"
)
ON_AUXILIARY = ", or search on auxiliary records (--on auxiliary)"
KEEP = (
    "trials/, again/, auditor/ and study.sqlite3 tell of the others and of how many there were, and so do the progress"
    " that was printed and the time that the search took: keep them. The attacks' scores took the truth to know; no ε"
    " covers them."
)
MISSED_WITHOUT_NOISE = (
    " The same training without noise misses it too: not the noise is the limit. Vary the training, such as --vary"
    " local.lr=0.05,0.5 and --vary scheme.rounds=10,40, or the model."
)
SELECTION = "a private selection, of which the others are not shown"
CONTRADICTED = "an attack got more than the proof allows"


def question_of_study(who: str, unit: str, adjacency: str, delta: float) -> str:
    return f"proven ε per {unit} towards {observer(who)} ({adjacency}, δ = {number(delta)})"


def setting_taken(setting: str, epsilon: float | None, learned: bool = True) -> str:
    """The headline.

    Args:
        epsilon: proven; above `USEFUL_EPSILON` it promises nothing. learned: whether its model is better than none.

    >>> setting_taken("clip 1", 8.0), setting_taken("clip 1", None).replace("\N{NO-BREAK SPACE}", " ")
    ('Take clip 1', 'Take clip 1; no proof protects it (ε = ∞)')
    >>> setting_taken("clip 1", 8.0, learned=False)
    'Best within the limits is clip 1, but its model is not shown to beat guessing'
    """
    taken = f"Take {setting}"
    if not learned:
        taken = f"Best within the limits is {setting}, but its model is not shown to beat guessing"
    if epsilon is not None and epsilon <= USEFUL_EPSILON:
        return taken
    return f"{taken}; no proof protects it (ε = {at_most(inf if epsilon is None else epsilon)})"


def take_setting(taken: str, seeds: int, kept: Sequence[str]) -> str:
    """taken: see `setting_taken`."""
    return f"{taken}. With {seeds} fresh seeds: {'; '.join(kept)}."


def above_with_search(total: float, most: float, terms: str, before: float) -> str:
    """What is above the ε that was asked.

    Args:
        total: ε of the search, of the recommended training and of what was spent before, of these terms.
        most: what was asked. before: what was spent before the search, 0 for nothing.
    """
    earlier = ""
    if before:
        earlier = f", of which {at_most(before)} was spent before this search"
    return (
        f"Whoever sees the search too has seen up to ε = {at_most(total)} ({terms}){earlier}. That is"
        f" above the {number(most)} that was asked."
    )


def too_weak(useless: str, spare: tuple[float, float] | None = None) -> str:
    """useless: that its model is. spare: the ε that is used and the one allowed, where much is left."""
    more = "Train longer, or allow a larger --epsilon-at-most."
    if spare is not None:
        used, most = spare
        more = f"It uses ε = {at_most(used)} of {number(most)}: train longer, or take less noise."
    return f"{useless} {more} Where one class is frequent, AUC says more than accuracy (--auc-at-least)."


def not_told_apart(figure: str, others: int, least: float, most: float) -> str:
    """figure: accuracy or AUC. others: settings within the limits, not shown to differ in it. least, most: their ε."""
    settings = "another setting" if others == 1 else f"{others} other settings"
    proven = " to ".join(dict.fromkeys([at_most(least), at_most(most)]))
    return (
        f"Within the limits, {settings} (proven ε {proven}) may have the same {figure}: the search does not tell them"
        " apart."
    )


def attacks_shortened(minutes: float, needed: int) -> str:
    """minutes: that an attack had. needed: for all of it."""
    return (
        f"`audit run` attacks this setting for longer than this study's `--minutes {minutes:g}` allowed, and may find"
        f" more; `audit choose --minutes {needed}` allows all of it. The page lists what was left out or shortened."
    )


def none_keeps(goal: str) -> str:
    return f"No setting keeps “{goal}”."


def nearest_setting(goal: str, setting: str, values: Sequence[str], alone: bool) -> str:
    """alone: whether nothing else is asked."""
    rest = " with the rest"
    if alone:
        rest = ""
    return f"No setting keeps “{goal}”{rest}; nearest is {setting} ({'; '.join(values)})."


def goals_unsure(goals: Sequence[str]) -> str:
    if not goals:
        return ""
    wide = f" By its estimates it keeps them all; its intervals are too wide to show “{'” and “'.join(goals)}”"
    return f"{wide}, and more --seeds, candidates or test records narrow them."


def selected_misses(goal: str, setting: str, values: Sequence[str]) -> str:
    return f"The most accurate setting, {setting}, does not keep “{goal}” ({'; '.join(values)})."


def protected_by(by_proof: Sequence[str], by_attack: Sequence[str], unlimited: float | None, limited: bool) -> str:
    """unlimited: the proven ε, said where no limit was asked of it (not `limited`)."""
    sentences = []
    if by_proof:
        sentences.append(f"By proof, whatever the attack: {' and '.join(by_proof)}.")
    if by_attack:
        sentences.append(
            f"From the attacks that were tried, and so no more than that: {' and '.join(by_attack)}. A stronger attack"
            " may get more."
        )
    if not limited:
        sentences.append(f"Proven is ε = {at_most(unlimited)}; above about 10 a proof promises little.")
    return " ".join(sentences)


def settings_counted(settings: int, measured: int, never: int) -> str:
    """never: so many were dropped before any training."""
    dropped = settings - measured
    if not dropped:
        return f"{settings} settings, all trained and attacked"
    return f"{settings} settings: {measured} trained and attacked, {dropped - never} not attacked, {never} not trained"


def auxiliary_alone(trainings: int) -> str:
    return (
        f"All {trainings} trainings of this study used auxiliary records, which no client trains on: the search costs"
        " the clients nothing, and no ε covers the people of the auxiliary records. What it measured is of those"
        " records; the clients' own are assumed to be of the same kind."
    )


def search_seen(who: str, trainings: int, again: int, bare: int, open_noise: bool, epsilon: float, terms: str) -> str:
    """What the search costs whoever takes part.

    Args:
        who: sees the trainings, if they run where the federation's do. again: so many of them were with fresh seeds.
        bare: so many are without noise.
        open_noise: whether the key is published. epsilon, terms: of all together, by unit, adjacency and δ.
    """
    noise = ""
    if bare:
        noise = f", {bare} of them without any noise,"
    if open_noise:
        noise = noise.removesuffix(",") + OPEN_NOISE
    return (
        f"In {trainings} trainings{noise} ({again} with fresh seeds, the others of settings and of their neighbours)"
        f" the search used the clients' own records. If {who} saw all of them, ε = {at_most(epsilon)} ({terms}) is"
        " spent before the recommended training begins: add its ε, and its δ to this δ. Other searches on the same"
        " records add theirs."
    )


def why_no_selection(why: str) -> str:
    return f" It is no private selection, which would cost less: {why}."


def selection_seen(again: int, noise: str, epsilon: float, terms: str, candidates: int) -> str:
    """What a private selection costs.

    Args:
        again: trainings with fresh seeds. noise: what is wrong with it, or "". epsilon, terms: as of `search_seen`.
        candidates: on average.
    """
    return (
        "The search looked at the clients' own records. Whoever sees of it the best setting alone, its accuracy, its"
        f" model and the {again} trained again{noise} has seen ε = {at_most(epsilon)} ({terms}; a private selection"
        f" among a Poisson number of candidates, {candidates} on average: arXiv:2110.03620, Theorem 6) before the"
        " recommended training begins; add its ε, and its δ to this δ."
    )


def plot_words(name: str, what: str, limited: bool) -> tuple[str, str]:
    """Of a plot: what stands for it, and its caption. limited: whether a limit of either is drawn."""
    figure, dashed = name.partition(" (")[0], ""
    if limited:
        dashed = "; dashed: what was asked"
    return (
        f"{name} against {what} of every measured setting; the numbers are in the table of settings",
        f"{name[0].upper()}{name[1:]} against {what}. Filled: no other setting is as good in {figure}, leakage and"
        f" proven ε; star: recommended; numbers: those of the table{dashed}. By the search's own short attacks.",
    )
