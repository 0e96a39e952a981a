"""What an inversion attacks in a view: messages, each alone, or all of one sender's as one aim, whose images have to
explain every message at its own round's weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from weakref import ReferenceType, WeakKeyDictionary, ref

from ....defenses.losses import loss_of
from ...base import Knowledge, Seen, View
from ...linking import tracks_of
from ..match.joint import FLOOR
from ..settings import Settings
from .sums import summed
from .target import Aim, Target, one_round

MOST = 16  # messages of the same images, as each costs as much as one round's attack; ours


# Each variant of an attack, and each manner, reads all messages, which takes minutes of a large network. What was read
# is found here as long as a plan holds it.
_READ: WeakKeyDictionary[View, WeakKeyDictionary[Knowledge, list[ReferenceType[Aim]]]] = WeakKeyDictionary()


def every_round(view: View, knowledge: Knowledge) -> list[Aim]:
    """Every upload by itself (`one_round`), and every server's step for whoever sees sums alone (`summed`)."""
    before = _READ.setdefault(view, WeakKeyDictionary())
    held = [aim for reference in before.get(knowledge, ()) if (aim := reference()) is not None]
    if held and len(held) == len(before[knowledge]):
        return held
    aims = one_round(view, knowledge) or summed(view, knowledge)
    before[knowledge] = [*map(ref, aims)]
    return aims


def all_rounds(view: View, knowledge: Knowledge) -> list[Aim]:
    """All messages of one sender address together; of anonymous senders, those that are alike enough to be taken for
    one's (`linking.tracks_of`), and that have the same labels where these are known.

    Where they concern the same records (`same_records`) there is one set of images, and the objective is the sum of
    every message's own at its own round's weights (`joint.py`). Of more than `MOST` messages those with the least
    noise are used, of equals such as are spread evenly. Where each message has a batch of its own, nothing joins them:
    each is read by itself, and the images are those of all. If a sender's batches repeat over epochs its images repeat
    too: score against the union of the messages' images. Senders with one usable message give nothing that
    `every_round` does not.
    """
    tracks = tracks_of(view) if view.anonymous else {}
    by_sender: dict[Hashable, list[Aim]] = defaultdict(list)
    for aim in every_round(view, knowledge):
        message, labels = aim.messages[0], aim.target.labels
        track = (tracks[message.id], None if labels is None else tuple(labels.tolist())) if message.id in tracks else ()
        by_sender[track or message.sender].append(aim)
    return [_together(aims, view) for aims in by_sender.values() if len(aims) > 1]


def same_records(aims: Sequence[Aim], view: View) -> bool:
    """Whether public facts say that all messages of a sender are of the same records: local training of whole epochs,
    or of steps that go over all records, or gradients of all records; of sums, with all clients in every round. Not
    where clients draw their batches in secret, or messages are told to be of unequally many records.
    """
    facts = view.facts
    if facts.secret_batches or len({aim.count for aim in aims if not aim.summed}) > 1:
        return False
    if view.sums and not all(view.sums[aim.messages[0].round].everybody for aim in aims if aim.summed):
        return False
    told = [aim.messages[0].num_records or aim.count for aim in aims]  # an anonymous sender's is assumed
    if facts.share == "gradient":
        return all(view.records.get(aim.messages[0].sender) == count for aim, count in zip(aims, told))
    if facts.steps is None:
        return True
    if all(aim.labelled for aim in aims) and not any(aim.summed for aim in aims):
        return all(aim.count == count for aim, count in zip(aims, told))
    clients = [view.sums[aim.messages[0].round].clients if aim.summed else 1 for aim in aims]
    batches = [-(-count // (facts.batch_size * many)) for count, many in zip(told, clients)]
    return all(facts.steps % every == 0 or facts.steps >= 2 * every - 1 for every in batches)


def least_noisy(noises: Sequence[float], most: int) -> list[int]:
    """The places of at most so many of these, in order: the least, of equals such as are spread evenly.

    >>> least_noisy([0.5, 0.1, 0.4, 0.1], 2), least_noisy([0.0] * 9, 3), least_noisy([0.3, 0.2], 3)
    ([1, 3], [0, 4, 8], [0, 1])
    """
    if len(noises) <= most:
        return [*range(len(noises))]
    spread = [round(k * (len(noises) - 1) / max(1, most - 1)) for k in range(most)]
    turn = {place: k for k, place in enumerate(dict.fromkeys([*spread, *range(len(noises))]))}
    return sorted(sorted(range(len(noises)), key=lambda place: (round(noises[place], 3), turn[place]))[:most])


def _together(aims: Sequence[Aim], view: View) -> Aim:
    own_model = any(aim.own_model for aim in aims)
    if not same_records(aims, view):
        targets = tuple(aim.target for aim in aims)
        return Aim("all-rounds", targets, tuple(m for aim in aims for m in aim.messages), own_model, aims[0].summed)
    whole = max(aim.count for aim in aims)
    alike = [aim for aim in aims if aim.count == whole]
    used = [alike[k] for k in least_noisy([aim.target.noise_share for aim in alike], MOST)]
    messages = tuple(m for aim in used for m in aim.messages)
    return Aim("all-rounds", (_joined([aim.target for aim in used]),), messages, own_model, aims[0].summed)


def _joined(targets: Sequence[Target]) -> Target:
    """One target of the same images; in the order of their labels, which every message has sorted. Messages count by
    their noise, and in the end by how much each is misread, too (`joint.weighed`).
    """
    labels = next((target.labels for target in targets if target.labels is not None), None)
    first, *others = (replace(target, labels=labels, trust=1 / (target.noise_share + FLOOR)) for target in targets)
    return replace(first, others=tuple(others))


def checked(view: View) -> None:
    """That it is of classes, or of sets of labels, that were learned by a loss whose gradients tell of images.

    Raises:
        ValueError: of another loss, of numbers or of a class for each pixel, or of text.
    """
    if view.vocabulary:
        raise ValueError("gradient inversion seeks images and rows of a table; --attack inversion-text reads text")
    loss = loss_of(view.facts.loss)
    if loss.refused:
        raise ValueError(loss.refused)
    if (view.classes < 2 and not view.several) or view.target_shape:
        raise ValueError(
            "gradient inversion seeks images of known or inferred labels; the targets of this setup are numbers, or a"
            f" class for each pixel (loss {view.facts.loss!r}), which membership attacks take"
        )
    if not loss.sought:
        raise ValueError(
            "gradient inversion needs gradients of every record; the setup's model was trained with the loss"
            f" {view.facts.loss!r}, which has none of records beyond the margin"
        )


def aims_of(view: View, knowledge: Knowledge, settings: Settings) -> list[Aim]:
    """Every message and every sender's messages that the settings ask for, and whose labels are known where they are
    not inferred; at least one. view, knowledge: as of `table.as_images`.

    Raises:
        ValueError: there is no such message.
    """
    if view.anonymous and settings.records:
        view = replace(view, messages=tuple(_counted(m, view, knowledge, settings) for m in view.messages))
    aims: list[Aim] = []
    for manner in settings.manners:
        aims += all_rounds(view, knowledge) if manner == "all-rounds" else _alone(view, knowledge, settings)
    if not aims:
        raise ValueError(
            f"the observer {view.observer!r} saw no message for gradient inversion: an upload, of a round whose global"
            f" model it saw too{_why_none(view, settings)}"
        )
    if settings.labels == "inferred":
        told = [aim for aim in aims if not view.several or all(target.count == 1 for target in aim.targets)]
        if not told:
            raise ValueError(
                "of sets of labels the gradient of several records tells how often each stands, not which stand"
                " together; use labels = 'known'"
            )
        return told
    labelled = [aim for aim in aims if aim.labelled]
    if not labelled:
        raise ValueError(
            "labels = 'known', but the setup's knowledge holds the labels of none of the messages"
            f" {view.observer!r} saw; use labels = 'inferred'"
        )
    return labelled


def _alone(view: View, knowledge: Knowledge, settings: Settings) -> list[Aim]:
    """What is attacked message by message: `messages` of them, those with the least noise."""
    aims = every_round(view, knowledge)
    if not settings.messages:
        return aims
    usable = [aim for aim in aims if aim.labelled or settings.labels == "inferred"] or aims
    usable = sorted(usable, key=lambda aim: (aim.messages[0].round, aim.key))  # of equals, whatever order they came in
    return [usable[place] for place in least_noisy([aim.target.noise_share for aim in usable], settings.messages)]


def _counted(message: Seen, view: View, knowledge: Knowledge, settings: Settings) -> Seen:
    """With the number of records that is assumed, of a client's own value that does not say."""
    known = message.broadcast or message.kind != view.facts.share or message.num_records
    return message if known or message.id in knowledge.labels else replace(message, num_records=settings.records)


def _why_none(view: View, settings: Settings) -> str:
    if view.why_no_sums:
        return f"; {view.why_no_sums}"
    if view.anonymous and not settings.records:
        return "; senders keep to themselves how many records they have, so assume a number: records"
    return ""
