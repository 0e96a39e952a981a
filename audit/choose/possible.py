"""What would end a study only after minutes of training, found out before: goals that nothing measures, audited clients
who take part in nothing, a config to which no attack applies.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ...defenses.data.vocabulary import vocabulary_of
from ...defenses.losses import loss_of
from ...defenses.schedule import rounds_planned
from ..errors import BadInput
from ..setup.capture import Training, planned_minutes, train_together
from ..setup.experiment import local_training
from ..setup.folder import open_setup
from .attacks import plan_attacks
from .case import StudyCase
from .costs import SettingCosts
from .space import Setting
from .trial import SCREEN_MESSAGES, screening

ROUNDS = 2  # of a rehearsal: more than one, as some attacks join rounds


def check_goals(case: StudyCase) -> None:
    """Raises BadInput where a goal cannot be measured."""
    goals, capture, observer = case.goals, case.config.capture, case.config.audit.observer
    if goals.accuracy_at_least is not None and not case.classifies:
        raise BadInput("--accuracy-at-least: this config's targets are no classes of records, so there is no accuracy")
    if goals.auc_at_least is not None and not (case.classifies and case.classes == 2):
        raise BadInput("--auc-at-least: it is of two classes of records, and this config's targets are none")
    if goals.of_attacks and not capture.truth:
        raise BadInput(
            "[capture] truth = false: without the truth no attack is scored and no limit on leakage kept; set truth ="
            " true, or ask for --accuracy-at-least and --epsilon-at-most alone"
        )
    if goals.reidentified_at_most is not None:
        _check_pictures(case, "--reidentified-at-most")
    if goals.words_told_at_most is not None:
        if any(vocabulary_of(parts.data.description) is None for parts in case.parts.values()):
            raise BadInput("--words-told-at-most: this config's records are no texts; use --reidentified-at-most")
        _check_pictures(case, "--words-told-at-most")
    if observer.name == "model" and not capture.candidates:
        raise BadInput(
            "[audit] observer = 'model': the final model alone is attacked by asking who was in the training data, and"
            " [capture] candidates = 0 leaves nobody to ask about; set candidates, such as 100"
        )


def _check_pictures(case: StudyCase, limit: str) -> None:
    """Raises BadInput where no attack can single out an image, a text or a row."""
    for data in (parts.data for parts in case.parts.values()):
        if len(data.input_shape) not in (1, 3):
            raise BadInput(f"{limit}: this config's records are neither images nor rows; use --leakage-at-most")
        loss = local_training(case.config, data.classes).loss
        if not data.classes or not loss_of(loss).sought:
            raise BadInput(f"{limit}: nothing is rebuilt from gradients of the loss {loss!r}; use --leakage-at-most")
    if (observer := case.config.audit.observer).sees_merged_only:
        raise BadInput(
            f"{limit}: records are rebuilt from single clients' messages, of which the observer"
            f" {str(observer)!r} sees none; use --leakage-at-most"
        )


def check_clients(case: StudyCase, point: Setting) -> None:
    """Raises BadInput where no audited client takes part in the search, or in what is attacked again.

    Whoever takes part hangs on the point as well, so of the clients' own records this is of one setting, and what it
    says is likely of the others.
    """
    if not any(case.training(point, case.search_seed, ("trial", n)).attended for n in range(case.count)):
        raise BadInput(case.nobody(f"of {case.count} trainings"))
    again = [case.training(point, case.fresh_of(i), ("again", 0, i)).attended for i in range(case.seeds)]
    if not any(again):
        raise BadInput(case.nobody(f"of {case.seeds} trainings with fresh seeds"))


def rehearse(case: StudyCase) -> SettingCosts:
    """What a setting takes, by the first rounds of one in a folder that goes again; nothing where there is no such
    training.

    Raises:
        BadInput: no attack applies.
    """
    more = (f"scheme.rounds={ROUNDS}",)
    try:
        drawn = case.training(case.first, case.search_seed, ("rehearsal",), more)
    except BadInput:  # a scheme with other rounds, or a client who is rarely drawn
        return SettingCosts()
    if not drawn.attended:
        return SettingCosts()
    with TemporaryDirectory() as scratch:
        setup = Path(scratch) / "setup"
        ends = [0.0]  # when the training began, and its rounds ended

        def watch(done: int, total: int, /, words: str = "") -> None:
            ends.append(time.monotonic())

        train_together([Training(drawn.experiment, setup, drawn.key)], progress=watch)
        each = ends[-1] - ends[-2]  # of the last round: the first one has its beginnings in it
        if open_setup(setup).manifest.status == "diverged":
            return SettingCosts()
        try:
            plan = plan_attacks(setup, screening(case), case.screen_minutes, messages=SCREEN_MESSAGES)
            made = case.to_price(case.first)
            return SettingCosts(planned_minutes(made), plan.counted, each * rounds_planned(made.scheme.schedule))
        except BadInput as why:
            raise BadInput(str(why).replace(str(setup), "a first training")) from None
