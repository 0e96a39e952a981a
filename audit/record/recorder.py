"""`dpfl_audit.Recorder`: three lines in any training loop, and a setup that every command takes."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ...defenses.data.pixels import OF_TYPE, Axes
from ...defenses.wire import Kind
from ..errors import BadInput, bad_input
from ..files import plain
from ..lock import NAME as LOCK
from ..lock import writing
from ..proven.numbers_table import check_delta
from ..replay.adjacency import PAIRS
from ..replay.equal import Norm
from ..replay.outcome import Replay
from ..replay.recorded import DeclaredBound, Loop, replay_loop
from ..results.format import Epsilon
from ..setup.format import BASE
from ..setup.public import Public
from ..setup.reading import SHARES, left_by_a_killed_run, plain_json, present, read_text, short
from ..tensors import dense_tensor, real_numbers
from .closing import Begun, Granted, as_given, close_recording, read_granted, write_granted, write_partial
from .copies import NoisesSeen
from .declared import other_model
from .given import as_read, axes_to_try, class_numbers, parted, shape_as, white_of
from .mechanism import MOST_RECORDS, Declared, mechanisms_of
from .network import Network, base_of, builder_of
from .recording import MOST_CLIENTS, Average, DataFacts, DeclaredTraining, Recording, fitting, recording_of
from .refused import OutOfTurn, refusing
from .rounds import OpenRound, SentUpload, read_rounds, session_of, write_round
from .sent import AllSent, Refusal, SentJournal, digest_of_value
from .spent import spent
from .targets import TargetKind, check_own_loss, stored_targets, target_kind
from .texts import next_word_targets, text_records
from .usable import SeenRecords, check_usable, outputs_of
from .values import NotFiniteTensor, flat_of, frozen_in, frozen_moved, names_in, wrapped_by
from .wrappers import bare_module

NORMS: dict[int, Norm] = {1: "l1", 2: "l2"}
RecordPair = Any  # (inputs, targets), or what `parted` makes them of


class Recorder:
    """Records what a training sends, into a setup folder that `audit epsilon`, `run`, `report` and `check` take.

    A round is whole, and on disk, when the next one is broadcast or the recorder is closed; whatever kills the process,
    whole rounds stay. The same call goes on with them (`next_round`). Record what is sent before it is sent: from then
    on it is priced, whether or not its round becomes whole. A call that is refused changes nothing that is recorded,
    and ends no training: the first is warned of in one sentence, `audit check` and the page call the setup incomplete,
    and that something was sent is kept in mind, so that nothing is proven that did not run.

    >>> import tempfile
    >>> from dpfl_audit import Gaussian
    >>> net = nn.Linear(3, 2)
    >>> folder = Path(tempfile.mkdtemp()) / "setup"
    >>> with Recorder(folder, net, claim=8, mechanism=Gaussian(clip=1, noise_std=0.5, by="client")) as rec:
    ...     for t in range(2):
    ...         rec.broadcast(t, net.state_dict())
    ...         rec.upload(t, 0, [np.full((2, 3), 0.5), np.full(2, -0.5)], num_examples=10)
    >>> from dpfl_audit.audit.setup.auditor import check_setup
    >>> setup, auditor = check_setup(folder)
    >>> setup.manifest.rounds, auditor.declared[1].status
    (2, 'declared')

    Args:
        folder: the setup to write; new, empty, or an unfinished recording of the same facts.
        model: an nn.Module; or a state dict or a list of arrays, of which no network can be built, so that ε is priced
            and nothing is attacked. A stack of torch's layers is built again without your code, a class of your own
            only by --allow-model, which calls it with (input_shape, classes) or with nothing. Parameters
            whose requires_grad is False are kept once, and left out of what is sent; whoever attacks has them.
        claim: the ε that you claim, or a mapping with epsilon, delta, unit, observer, adjacency.
        mechanism: what you declare of clip and noise: a `Gaussian`, a `Laplace`, several, a `Correlated`, or None.
        share: what an upload is: an "update" (added to the model), "weights" or a "gradient".
        average: how the server weighs uploads: by "records" (FedAvg), a plain "mean" of those that came, or their sum
            over the cohort that the mechanism's sampling says is "expected" (DP-FedAvg, McMahan et al. 2018).
        secure_aggregation: whether only sums are seen, as you declare.
        data: what a record looks like (`recording.DataFacts`); found out from records and model where it is left out.
        tables: audit, local, attack and name, as in a config.
        clients: how many there are; None for as many as send something.
        keep: the clients whose uploads are kept; None for all. The others' are counted.
        auxiliary, gallery, pool: records of the attacker's own, for line-ups, and left over by the clients' lot.
        seed: of ids.
        by: what records.
        loss: what clients minimise: a name, such as "cross_entropy", "bce_with_logits" or "focal(gamma=2)", or torch's
            own, as nn.BCEWithLogitsLoss(); None where nobody says, so that attacks take the usual one of such outputs
            and targets, and a doubt of it stands on the page.
        build: of a class with arguments of its own, what makes the same network with nothing, or with (input_shape,
            classes): "module:function", or the function. It is called when the recorder opens, or with the first
            records where it needs their shape; for attacks `--allow-model module:function` says yes to it.
        strict: calls of an open recorder raise BadInput in place of a warning.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right. An open recorder raises it where it is
            strict, closed, or asked a question.
    """

    def __init__(
        self,
        folder: str | Path,
        model: object,
        *,
        claim: float | Mapping[str, Any] | None = None,
        mechanism: Declared | Sequence[Declared] | None = None,
        share: Kind = "update",
        average: Average = "records",
        secure_aggregation: bool = False,
        data: Mapping[str, Any] | None = None,
        tables: Mapping[str, Any] | None = None,
        clients: int | None = None,
        keep: Iterable[int] | None = None,
        auxiliary: RecordPair | None = None,
        gallery: RecordPair | None = None,
        pool: RecordPair | None = None,
        seed: int = 0,
        by: str = "dpfl_audit.Recorder",
        loss: object = None,
        build: str | Callable[..., nn.Module] | None = None,
        strict: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.strict, self._refusals = strict, 0
        self._keep = _kept(keep)
        wrapped, model = model, bare_module(model)
        self._module = model if isinstance(model, nn.Module) else None
        self._builder = None if build is None else builder_of(build)[1]
        declared = DeclaredTraining(
            claim=claim,
            mechanism=mechanism,
            share=share,
            average=average,
            secure_aggregation=secure_aggregation,
            data=data,
            tables=tables,
            clients=clients,
            seed=seed,
            by=by,
            loss=loss,
            build=build,
        )
        self._declared, recording, self._base = declared, recording_of(model, declared), base_of(model)
        self._asked = recording.plain()
        self._lock, self._closed, self._secret = ExitStack(), False, secrets.randbits(128)
        self._journal = SentJournal(self.folder, session_of(self._secret))
        self._open: OpenRound | None = None
        self._seen, self._left = NoisesSeen(), dict[int, str]()
        self._begun, self._granted, self._done = Begun(recording, ()), Granted(), 0
        self._lock.enter_context(writing(self.folder))
        try:
            self._start(recording)
            if wrapped is not model:
                self.note(f"the network without its {type(wrapped).__name__}")
            self._journal.begin(self._done)
            given = {"auxiliary": auxiliary, "gallery": gallery, "pool": pool}
            if any(pair is not None for pair in given.values()):
                held: dict[str, Any] = {
                    name: self._records(pair, name) for name, pair in given.items() if pair is not None
                }
                self._granted = replace(self._granted, **held)
                write_granted(self.folder, self._granted)
        except BaseException:
            self._lock.close()
            raise

    @property
    def network(self) -> Network:
        """The model's tensors, by name."""
        return self._begun.recording.network

    @property
    def next_round(self) -> int:
        """The number of the round to broadcast next."""
        if self._open is None:
            return self._done
        return self._open.number + 1

    @refusing
    def broadcast(self, round: int, model: object, *, mechanism: Declared | Sequence[Declared] | None = None) -> None:
        """The model that all clients of `round` start from, on its way down. It ends the round before.

        Args:
            round: counted from 0; the one after the last.
            model: a state dict, an nn.Module, a list of arrays, a flat vector, or a safetensors or npz file.
            mechanism: this round's, where it is not that of the others; () for none.

        Raises:
            BadInput: out of turn, or not this model's tensors.
        """
        self._alive()
        if not _whole(round) or round != self.next_round:
            held = "nothing is there yet, and rounds are counted from 0"
            if self._open is not None:
                held = f"round {self._open.number} goes on"
            elif self._done:
                held = f"the last whole round is {self._done - 1}"
            raise BadInput(f"broadcast of round {short(round)}: expected round {self.next_round}; {held}")
        where = f"broadcast of round {round}"
        if not self._begun.names:
            self._frozen_since()
        network = self._begun.recording.network
        frozen = frozen_in(model, network, where)
        if not self._begun.names:
            self._begun = replace(self._begun, names=names_in(model, network, where))
            self.note(*(f"names of tensors without {who}" for who in wrapped_by(model, network)))
            if frozen_moved(frozen, self._base):  # the network that the recorder was opened with had other values
                self._base |= frozen
                self._write_base()
            flat = flat_of(model, network, self._begun.names, where)
            self._begun.write(self.folder)
        else:
            flat = flat_of(model, network, self._begun.names, where)
        recording = self._begun.recording
        if mechanism is None:
            own = recording.mechanism
        else:
            own = fitting(mechanisms_of(mechanism), recording.average)
        self._end_round(flat)
        self._journal.broadcast(round, flat, own)
        if self._left.pop(round, digest := digest_of_value(flat)) != digest:
            warnings.warn(f"{self.folder}: {other_model(round)}", stacklevel=3)
        self._open = OpenRound(round, flat, own, self._secret, seen=self._seen)
        self._note_frozen(frozen_moved(frozen, self._base), where)

    @refusing
    def upload(
        self, round: int, client: int, tensors: object, num_examples: int, *, records: RecordPair | None = None
    ) -> None:
        """What a client sent in a round.

        Args:
            round: the one that was broadcast last. client: its number, from 0 on; once a round.
            tensors: as for `broadcast`.
            num_examples: how many records it says that it trained on, at least 1.
            records: these records, inputs (n, …) and targets (n,), for scoring alone; None where nobody tells. n is
                num_examples, but where the mechanism draws records: then num_examples may be how many were drawn.

        Raises:
            BadInput: out of turn, or not this model's tensors. What was sent nevertheless is counted. Where only its
                records cannot be taken, the upload is recorded without them.
        """
        opened = self._round(round, client, "upload")
        where = f"upload of client {client} in round {round}"
        if client in opened.uploads:
            self._lose(opened, client, "it sent a second value in the round")
            raise BadInput(
                f"{where}: it has one already; a client uploads once a round (rec.again is for a second run)"
            )
        if not _whole(num_examples) or not 1 <= num_examples <= MOST_RECORDS:
            self._lose(opened, client, "its number of records was no number from 1 on")
            raise BadInput(
                f"{where}: num_examples = {short(num_examples)}: expected a whole number of records from 1 on, below"
                " 2^53"
            )
        try:
            value = self._flat(tensors, where)
        except BadInput as error:
            finite = "tensors that are not the model's"
            if isinstance(error, NotFiniteTensor):
                finite = "a value that is not finite"
            self._lose(opened, client, finite)
            raise
        kept = self._keep is None or client in self._keep
        opened.uploads[client] = SentUpload(value, int(num_examples), kept)
        self._journal.upload(int(client), int(num_examples), value)
        held = frozen_in(tensors, self.network, where)
        added = self._begun.recording.share != "weights"
        self._note_frozen(frozen_moved(held, {n: torch.zeros(()) for n in held} if added else self._base), where)
        if records is not None and kept:
            pair = self._records(records, where)
            drawn = any(one.of == "record" and one.sampling is not None for one in opened.mechanism)
            if len(pair[0]) != num_examples and not drawn:  # who draws records may count those that steps drew
                raise BadInput(
                    f"{where}: {len(pair[0])} records and num_examples = {num_examples}; expected the records behind"
                    " the upload, all of them, and their number"
                )
            opened.uploads[client] = replace(opened.uploads[client], records=pair)

    @refusing
    def raw(self, round: int, client: int, tensors: object) -> None:
        """The client's value before noise, and before the clip, which shows the clip too; compared, and never written.

        Args:
            round, client: of an upload that is recorded. tensors: as for `upload`, of the same kind.

        Raises:
            BadInput: there is no such upload, or these are not the model's tensors.
        """
        upload = self._uploaded(round, client, "raw")
        value = self._flat(tensors, f"raw value of client {client} in round {round}")
        assert self._open is not None
        self._open.uploads[client] = replace(upload, raw=value)

    @refusing
    def again(self, round: int, client: int, tensors: object) -> None:
        """What the client sends where the same round is run a second time, with noise drawn anew. It shows the noise
        without raw values, if training itself draws nothing anew.

        Args:
            round, client: of an upload that is recorded. tensors: as for `upload`.

        Raises:
            BadInput: there is no such upload, or these are not the model's tensors.
        """
        upload = self._uploaded(round, client, "again")
        value = self._flat(tensors, f"second run of client {client} in round {round}")
        assert self._open is not None
        self._open.uploads[client] = replace(upload, again=value)

    @refusing
    def noisy_mean(self, round: int, tensors: object) -> None:
        """The mean of the clipped updates with the server's noise on it, where an optimiser of the server's own (a
        learning rate, momentum, Adam) makes the next model of it. Without it that model is taken for the one before and
        this mean. It is compared with the uploads, and never written.

        Args:
            round: that goes on. tensors: as for `upload`, of an update.

        Raises:
            BadInput: out of turn, or not this model's tensors.
        """
        opened = self._round(round, 0, "noisy mean")
        opened.noisy_mean = self._flat(tensors, f"noisy mean of round {round}")

    @refusing
    def unnoised(self, round: int, client: int, what: str) -> None:
        """Something that a client sent beside its upload that no noise hides, such as a training loss. It is priced as
        what it is, so that nothing is proven towards whoever sees single messages; no value of it is kept.

        Args:
            round: that goes on. client: who sent it. what: its name, for sentences.

        Raises:
            BadInput: out of turn, or no name.
        """
        opened = self._round(round, client, "value without noise")
        if not isinstance(what, str) or not what:
            raise BadInput(f"value without noise of client {client} in round {round}: what = {short(what)}: its name")
        self._journal.lost(int(client), f"{what}, sent without noise")
        opened.unnoised.append((client, what))

    @refusing
    def declare(self, round: int, mechanism: Declared | Sequence[Declared] | None) -> None:
        """The mechanism of the round that goes on, where it is known only after its broadcast. Raises BadInput."""
        opened = self._round(round, 0, "declaration")
        said = fitting(mechanisms_of(mechanism), self._begun.recording.average)
        self._journal.declare(said)
        opened.mechanism = said

    @refusing
    def defect(self, round: int, what: str, said: str, why: str, *, breaks: bool = False) -> None:
        """A known defect of what runs, for `audit check` and the page.

        Args:
            round: that goes on. what, said, why: as of a `Declaration`.
            breaks: whether what is declared does not hold because of it, so that nothing is proven.
        """
        if not all(isinstance(text, str) for text in (what, said, why)):
            raise BadInput(f"defect of round {short(round)}: what, said and why are texts")
        status = "defect"
        if breaks:
            status = "contradicted"
        row = {"what": what, "said": said, "status": status, "why": why}
        self._round(round, 0, "defect").defects.append(row)

    @refusing
    def figures(self, round: int, **values: float) -> None:
        """Figures of the round for the report, such as test_accuracy=0.9 or test_loss=0.3; beside an accuracy
        majority_accuracy=0.6, the share of the most frequent class of the same records, balanced_accuracy=0.8, the
        mean over classes, and of two classes test_auc=0.85. Raises BadInput.
        """
        opened = self._round(round, 0, "figures")
        for name, value in values.items():
            if not name.isidentifier() or name in ("round", "participants"):
                raise BadInput(f"figures of round {round}: {short(name)} is no name of a figure, such as test_accuracy")
            if not _number(value) or (name in SHARES and not 0 <= value <= 1):
                raise BadInput(f"figures of round {round}: {name} = {short(value)}: expected a finite number")
        opened.figures.update({name: float(value) for name, value in values.items()})

    @refusing
    def candidates(self, inputs: Any, targets: Any, owners: Sequence[int]) -> None:
        """Records whose membership is asked for.

        Args:
            inputs, targets: the records, members and others mixed.
            owners: of each the number of the client that trains on it, -1 for nobody.

        Raises:
            BadInput: they do not fit each other or the model's records.
        """
        self._alive()
        pair = self._records((inputs, targets), "candidates")
        numbers = list(owners.tolist() if isinstance(owners, Tensor | np.ndarray) else owners)
        most = self._begun.recording.clients or MOST_CLIENTS
        if len(numbers) != len(pair[0]) or not all(_whole(c) and -1 <= c < most for c in numbers):
            raise BadInput(f"candidates: {len(pair[0])} records need as many owners, client numbers or -1 for nobody")
        whose = torch.tensor([int(c) for c in numbers], dtype=torch.long)
        self._granted = replace(self._granted, candidates=pair, owners=whose)
        write_granted(self.folder, self._granted)

    def replay(self, loop: Loop, clients: Any, *, neighbours: int = PAIRS, folder: str | Path | None = None) -> Replay:
        """Runs a loop on its clients' data and on neighbours of them, before anything is recorded: one client's data
        are another's, blank, enormous or no numbers. With the same coins, and with what was sent held, a raw value may
        move by its declared bound alone, and nothing else that leaves may move. What is found stands in the setup.

        Args:
            loop: (clients' data, recorder) → anything; the rounds of your training, which call the recorder as always.
            clients: the data of each, map-style. neighbours: how many. folder: as of `dpfl_audit.replay`.

        Raises:
            BadInput: something is recorded already; the loop differs on equal data, or tells of nothing.
        """
        self._alive()
        if self.next_round:
            raise BadInput("replay: a round is recorded already; replay the loop before its first round")
        bound = DeclaredBound(None)
        for one in self._begun.recording.mechanism:
            if one.by == "client" and one.of == "client":
                bound = DeclaredBound(2 * float(one.clip), NORMS[one.order])
        seed = self._begun.recording.seed
        found = replay_loop(loop, clients, bound, neighbours=neighbours, seed=seed, folder=folder)
        self._journal.replayed(found.sentences, bool(found.of_numbers))
        return found

    def epsilon(self, *, delta: float | None = None, observers: Sequence[str] = ()) -> tuple[Epsilon, ...]:
        """What is spent by now, by observer, unit and adjacency: of all that was sent, as if another model went out.

        Args:
            delta: None for the recording's. observers: () for those that the recording is about.

        Raises:
            BadInput: no client sent anything yet; or an observer or δ that cannot be.
        """
        return self._spent(delta, observers)

    def stop_at(self, epsilon: float, *, delta: float | None = None) -> bool:
        """Whether one round more, like the last, would prove more than `epsilon` of the row that the recording is about
        (`[audit]` in tables: observer, unit, adjacency). Ask it after the uploads of a round, before the next one is
        broadcast. The answer hangs on clips, noise, and who took part with how many records; on a value only where it
        was refused or a check contradicts what is declared, as then nothing is proven.

        Raises:
            BadInput: no client sent anything yet; or an ε or δ that cannot be.
        """
        if not _number(epsilon) or epsilon <= 0:
            raise BadInput(f"stop_at({short(epsilon)}): expected an ε above 0")
        rows = self._spent(delta, (), more=True)
        return max(row.proven or 0.0 for row in rows if row.asked) > epsilon

    def close(self, *, nothing_more: bool = True) -> Path:
        """Ends the last round and makes the setup; a second call does nothing. Returns its folder.

        Args:
            nothing_more: your word that nobody gets another model than those that were broadcast; False where nobody
                knows, so that one made of the last round is priced as if it were sent.

        Raises:
            BadInput: nothing was recorded; the recording stays as it is.
        """
        if self._closed:
            return self.folder
        if nothing_more:
            self._journal.closed()
        self._end_round(None)
        self._begun.write(self.folder)
        close_recording(self.folder)
        self._closed = True
        self._lock.close()
        return self.folder

    def abandon(self) -> None:
        """Leaves the recording unfinished, with its whole rounds; the same call goes on with them, `audit import`
        closes it.
        """
        if not self._closed:
            self._open, self._closed = None, True
            self._lock.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes; after an exception the recording stays unfinished, with all whole rounds."""
        try:
            if kind is None:
                self.close()
        except BadInput as error:
            if self.strict:
                raise
            warnings.warn(str(error), stacklevel=2)  # whatever the loop does next, such as saving its model, goes on
        finally:
            self.abandon()

    def _spent(self, delta: float | None, observers: Sequence[str], *, more: bool = False) -> tuple[Epsilon, ...]:
        if self._closed:
            raise BadInput(
                f"{self.folder}: this recorder is closed; `audit epsilon {self.folder}` tells what was spent"
            )
        if not self._done and (self._open is None or not (self._open.uploads or self._open.lost)):
            raise BadInput(f"{self.folder}: no client sent anything yet, so nothing is spent")
        if isinstance(observers, str) or (delta is not None and not _number(delta)):
            raise BadInput(f"epsilon: observers = {short(observers)}, delta = {short(delta)}: expected names, a number")
        check_delta(delta, "delta =")
        return spent(self.folder, self._open, delta, observers, more=more)

    # --- one round

    def _alive(self) -> None:
        if self._closed:
            raise BadInput(f"{self.folder}: this recorder is closed; nothing can be added to a setup")

    def _round(self, round: int, client: int, what: str) -> OpenRound:
        self._alive()
        if self._open is None:
            raise OutOfTurn(
                f"{what} of round {short(round)}: broadcast the round's model first (rec.broadcast({short(round)}, …))"
            )
        if not _whole(round) or round != self._open.number:
            raise OutOfTurn(f"{what} of round {short(round)}: round {self._open.number} is the one that goes on")
        most = self._begun.recording.clients
        if not _whole(client) or not 0 <= client < MOST_CLIENTS:
            said = f"{what} in round {round}: client = {short(client)}"
            raise OutOfTurn(f"{said}: expected a number from 0 on, below {MOST_CLIENTS:,}; number clients one by one")
        if most is not None and client >= most:
            raise OutOfTurn(f"{what} in round {round}: client {client} of {most}; clients are 0 to {most - 1}")
        return self._open

    def _uploaded(self, round: int, client: int, what: str) -> SentUpload:
        opened = self._round(round, client, what)
        if client not in opened.uploads:
            raise BadInput(f"{what} of client {client} in round {round}: record its upload first")
        return opened.uploads[client]

    def _flat(self, tensors: object, where: str) -> Tensor:
        return flat_of(tensors, self._begun.recording.network, self._begun.names, where)

    def note(self, *notes: str) -> None:
        """How something was read, for whoever reads the setup."""
        recording = self._begun.recording
        known = tuple(dict.fromkeys((*(recording.data.read_as or ()), *notes)))
        if known != (recording.data.read_as or ()):
            self._know(recording.data.model_copy(update={"read_as": known}))

    def _frozen_since(self) -> None:
        """Takes the network as it is trained where parameters were frozen, or no longer are, since the recorder opened:
        nothing is recorded yet.
        """
        if self._module is None:
            return
        trained = {name for name, parameter in self._module.named_parameters() if parameter.requires_grad}
        if not trained or trained == {*self.network.trained}:
            return
        network = recording_of(self._module, self._declared).network
        self._begun, self._base = Begun(replace(self._begun.recording, network=network), ()), base_of(self._module)
        self._asked = self._begun.recording.plain()
        self._write_base()

    def _note_frozen(self, name: str, where: str) -> None:
        """That a tensor which the network freezes was sent with other values, which nothing else would tell."""
        if self._open is not None and name:
            said = f"{name!r} and all others whose requires_grad is False never change"
            why = f"it did in the {where}; open the Recorder with a network whose requires_grad says what is trained"
            row = {"what": "frozen parameters", "said": said, "status": "contradicted", "why": why}
            self._open.defects.append(row)

    def _refused(self, error: BadInput, breaks: bool) -> None:
        """What a call that was not taken ends in. breaks: as of a `Refusal`."""
        if self.strict or self._closed:
            raise error
        self._journal.refused(Refusal(str(error), breaks))
        self._refusals += 1
        if self._refusals == 1:
            goes_on = "the training goes on, and the setup is marked as incomplete (strict=True raises instead)"
            warnings.warn(f"{error}; {goes_on}", stacklevel=4)  # where the owner calls

    def _lose(self, opened: OpenRound, client: int, why: str) -> None:
        self._journal.lost(int(client), why)
        opened.lost.append((client, why))

    def _end_round(self, next_model: Tensor | None) -> None:
        if self._open is None:
            return
        write_round(self.folder, self._begun.recording, self._begun.layout, self._open, next_model)
        self._done, self._open = self._open.number + 1, None

    # --- records

    def _records(self, given: Any, where: str) -> tuple[Tensor, Tensor]:
        """Records as a setup keeps them: float32 inputs before normalisation, class numbers or float targets."""
        facts = self._begun.recording.data
        read, answers = parted(given, where)
        with bad_input(where):
            answers, labels = class_numbers(answers, facts.labels)
            targets = dense_tensor(answers, "records' targets")
            if facts.vocabulary is None:
                array = _array(dense_tensor(read, "records' inputs"))
            else:
                texts, stood = text_records(read, facts, where)
                array = texts.numpy()
                if self._begun.recording.tells_next_word:
                    targets = next_word_targets(targets, read, stood, where)
        if array.ndim < 2 or targets.dim() < 1 or len(array) != len(targets) or len(array) == 0:
            raise BadInput(
                f"{where}: records of shapes {tuple(array.shape)} and {tuple(targets.shape)}: expected inputs (n, …)"
                " and targets (n, …), at least one"
            )
        if targets.shape[1:] == (1,):
            targets = targets.squeeze(1)
        if targets.dtype == torch.bool:
            targets = targets.long()
        with bad_input(where):
            white = None if facts.vocabulary is not None else white_of(array, facts)
        data = self._learn(array, white, targets, where)
        if labels and data.labels is None:
            data = self._know_labels(labels, data, where)
        inputs, notes = as_read(array, data.axes or "as given", white)
        if tuple(inputs.shape[1:]) != data.input_shape:
            raise BadInput(f"{where}: records of shape {tuple(inputs.shape[1:])}; they were {data.input_shape} before")
        self.note(*notes)
        if facts.vocabulary is not None:
            if not data.target_shape:
                targets = _classes(targets, data.classes, where)
            return torch.from_numpy(array), targets
        network = self._begun.recording.network
        channels = inputs.shape[1]
        mean = network.mean or data.mean or (0.0,) * channels
        std = network.std or data.std or (1.0,) * channels
        if len(mean) != channels:
            raise BadInput(f"{where}: mean has {len(mean)} numbers, and records have {channels} channels or features")
        inputs = as_given(data, (inputs, targets), mean, std)
        if not torch.isfinite(inputs).all():
            raise BadInput(f"{where}: records hold a value that is not finite")
        if inputs.dim() == 4 and not (float(inputs.min()) >= 0 and float(inputs.max()) <= 1):
            raise BadInput(
                f"{where}: pixels run from {float(inputs.min()):.3g} to {float(inputs.max()):.3g}; hand them over in"
                " [0, 1], or as the network gets them with data={'mean': …, 'std': …, 'normalised': True}"
            )
        return inputs, stored_targets(targets, TargetKind(data.classes or 0, data.target_shape or (), data.loss), where)

    def _learn(self, array: np.ndarray, white: float | None, targets: Tensor, where: str) -> DataFacts:
        """What a record looks like, from the first that are seen, where the owner did not say."""
        recording = self._begun.recording
        data = recording.data
        if data.target_shape is not None:
            return data
        axes = self._axes_of(array.shape[1:], white is not None, data, where)
        shape, outputs = data.input_shape or shape_as(array.shape[1:], axes), None
        if self._module is not None:
            seen = SeenRecords(shape, data.classes, recording.loss, data.vocabulary is not None)
            outputs = check_usable(self._module, recording.network.name, seen, where, self._builder)
        kind = target_kind(targets, outputs, data, recording.loss, where)
        check_own_loss(kind, outputs, targets[:2], where)
        typed = white if array.dtype not in OF_TYPE else None  # of others the first decide
        found = {"classes": kind.classes, "target_shape": kind.shape, "loss": kind.loss, "axes": axes, "white": typed}
        return self._know(data.model_copy(update={"input_shape": shape, **found}))

    def _axes_of(self, shape: tuple[int, ...], pixels: bool, data: DataFacts, where: str) -> Axes:
        """How records are turned: as their owner says their shape is, or as the network takes them."""
        if data.vocabulary is not None:
            return "as given"
        tried = axes_to_try(shape, pixels)
        if data.input_shape is not None:
            return next((axes for axes in tried if shape_as(shape, axes) == data.input_shape), "as given")
        if self._module is None:
            return tried[0]
        for axes in tried:
            with suppress(BadInput):
                outputs_of(self._module, shape_as(shape, axes), where)
                return axes
        return "as given"

    def _know_labels(self, labels: tuple[str, ...], data: DataFacts, where: str) -> DataFacts:
        if len(labels) != data.classes:
            raise BadInput(
                f"{where}: targets are {len(labels)} words, and there are {data.classes} classes; name them all, in the"
                " order of the network's outputs, by data={'labels': […]}"
            )
        self.note("targets that are words as classes, by the alphabet (data={'labels': […]} says another order)")
        return self._know(self._begun.recording.data.model_copy(update={"labels": labels}))

    def _know(self, data: DataFacts) -> DataFacts:
        self._begun = replace(self._begun, recording=replace(self._begun.recording, data=data))
        self._begun.write(self.folder)
        return data

    # --- the folder

    def _start(self, recording: Recording) -> None:
        work = self.folder / ".work" / "recording.json"
        if present(work):
            with left_by_a_killed_run(work, "remove the folder to record anew"):
                begun, rounds = Begun.read(self.folder), read_rounds(self.folder)
                self._granted = read_granted(self.folder)
                self._same_facts(begun.recording)
            self._begun, self._done = begun, len(rounds)
            self._left = {attempt.number: attempt.model for attempt in AllSent.read(self.folder).attempts}
            if self._base:
                held = load_file(self.folder / BASE)
                self._base = {name: held[self.network.called(name)] for name in self._base}
            write_partial(self.folder, begun)  # also where an earlier close was killed at its very end
            return
        left = [p.name for p in self.folder.iterdir() if p.name not in (LOCK, ".work") and p.suffix != ".part"]
        if left and "setup.json" in left:
            raise BadInput(f"{self.folder} holds a setup already; choose another folder, or remove it")
        if left:
            raise BadInput(f"{self.folder} is not empty and holds no recording; choose another folder")
        shutil.rmtree(self.folder / ".work", ignore_errors=True)
        self._begun, self._done, self._granted = Begun(recording, ()), 0, Granted()
        write_partial(self.folder, self._begun)
        self._write_base()
        self._begun.write(self.folder)

    def _write_base(self) -> None:
        if self._base:
            Public(self.folder).write("base", {self.network.called(name): v for name, v in self._base.items()})

    def _same_facts(self, held: Recording) -> None:
        """Raises BadInput for an unfinished recording of something else."""
        mine, theirs = (json.loads(json.dumps(plain(facts))) for facts in (self._asked, held.plain()))
        for name, value in mine.items():
            before = theirs[name]
            if name == "data":  # what was found out on the way is no contradiction
                before = {k: v if value[k] is not None else None for k, v in before.items()}
            if before != value:
                raise BadInput(
                    f"{self.folder} holds an unfinished recording with another {name.replace('_', ' ')}; go on with"
                    f" that, close it with `audit import {self.folder}`, or choose another folder"
                )


def _array(read: Tensor) -> np.ndarray:
    """NumPy's of the same numbers; types that it lacks, as bf16, are float32. Raises ValueError for whole numbers that
    float32 cannot tell apart.
    """
    if not read.is_floating_point():
        real_numbers(read, "records' inputs", torch.float32)
    return (read.float() if read.dtype in (torch.bfloat16, torch.float16) else read).numpy()


def _classes(targets: Tensor, classes: int | None, where: str) -> Tensor:
    """Targets (n,) as class numbers, or of a regression as numbers. Raises BadInput."""
    if not classes:
        return targets.float()
    if targets.is_floating_point() or bool(((targets < 0) | (targets >= classes)).any()):
        raise BadInput(f"{where}: targets must be class numbers from 0 to {classes - 1}")
    return targets.long()


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(value: object) -> bool:
    try:
        ok = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        return ok and math.isfinite(cast(float, value))
    except (OverflowError, TypeError):
        return False


def _kept(keep: object) -> frozenset[int] | None:
    """The clients whose uploads are kept, None for all. Raises BadInput."""
    if keep is None:
        return None
    clients: list[Any] = list(keep) if isinstance(keep, Iterable) and not isinstance(keep, str) else [keep]
    if not isinstance(keep, Iterable) or not all(_whole(client) for client in clients):
        raise BadInput(f"keep = {short(keep)}: expected numbers of clients, or None for all")
    return frozenset(int(client) for client in clients)


def finish(folder: Path) -> Path:
    """Closes an unfinished recording with the whole rounds that it has.

    Raises:
        BadInput: there is none, somebody writes it, or no round is whole.
    """
    work = folder / ".work" / "recording.json"
    if not present(work):
        raise BadInput(f"{folder} is no unfinished recording")
    with writing(folder), left_by_a_killed_run(work, "the whole rounds, if there are any, are in tensors/"):
        plain_json(read_text(work))
        return close_recording(folder)
