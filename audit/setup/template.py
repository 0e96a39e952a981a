"""The commented config that `audit init` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from ...defenses.nearest import instead
from ...defenses.presets import PRESETS
from ..errors import BadInput
from .config import current_name

WIDTH = 120


@dataclass(frozen=True)
class Wanted:
    """What a config is to prove: from whom (`observer`), about whom (`unit`), of which kind of records, at most which
    ε. The scheme follows: noise on each record's gradient hides records; noise on updates hides a client from the
    server; noise on their sum hides it from everybody else. root: the file or folder of the records, "" for bundled
    ones; target: the column of a table that is predicted; holder: the column that says whose row it is, "" for rows
    dealt evenly; drop: columns that are left out; clients: how many parties train together, each of the holders one;
    captured: whose uploads are kept.
    """

    observer: Literal["server", "downlink", "model"]
    unit: Literal["record", "client"]
    records: Literal["table", "images"]
    epsilon: float = 8.0
    root: str = ""
    target: str = ""
    holder: str = ""
    drop: tuple[str, ...] = ()
    clients: int = 3
    captured: tuple[int, ...] = (0,)

    @property
    def data(self) -> str:
        """The config's table [data]: a bundled set, or all records of `root`, dealt evenly."""
        if not self.root:
            return DATA[self.records].replace("clients = 3\n", f"clients = {self.clients}\n")
        name, options = FILE_DATA[self.records]
        lines = [f'name = "{name}"', f"root = {json.dumps(self.root, ensure_ascii=False)}"]
        if self.target:
            lines.append(f"target = {json.dumps(self.target, ensure_ascii=False)}")
        deal = [ALL_SAMPLES, DEAL[self.records]]
        given = []
        if self.holder:
            given.append(f"holder = {json.dumps(self.holder, ensure_ascii=False)}")
            deal = ['partition = "writer"           # each holder is a client, of those of its rows that train']
        if self.drop:
            given.append(f"drop = {json.dumps(self.drop, ensure_ascii=False)}")
        if given:
            options = f'options = {{ {", ".join(given)} }}  # drop = ["id"]: columns to leave out'
        lines += [options, f"clients = {self.clients}", *deal]
        return "[data]\n" + "\n".join(lines) + "\n\n"

    @property
    def scheme(self) -> str:
        if self.unit == "record":
            return "dpsgd"
        if self.observer == "server":
            return "local-gaussian"
        return "central-gaussian"


def wanted_config(wanted: Wanted) -> str:
    """A config that trains as it stands, on bundled records of that kind, and proves what is wanted."""
    audit = AUDIT.replace('unit = "client"', f'unit = "{wanted.unit}"').replace('"server" ', f'"{wanted.observer}" ')
    scheme = _scheme_table(wanted.scheme, wanted.epsilon)
    local, capture = LOCAL, CAPTURE
    capture = capture.replace("clients = [0]", f"clients = {[*wanted.captured]}")
    if wanted.records == "table":  # Adam at 1e-3 takes more rounds than noise allows a logistic model
        local = LOCAL.replace('"adam"', '"sgd" ').replace("lr = 1e-3", "lr = 0.5 ")
    return _head(wanted.scheme) + wanted.data + MODEL[wanted.records] + local + scheme + capture + audit + ATTACK


def config_template(scheme: str) -> str:
    """A config for `scheme` that trains as it stands, on bundled photographs. Raises BadInput for an unknown scheme."""
    name = current_name(scheme)
    if name not in PRESETS:
        raise BadInput(f"{scheme!r} is not a scheme{instead(name, PRESETS)}")
    return _head(name) + DATA["photos"] + MODEL["photos"] + LOCAL + _scheme_table(name) + CAPTURE + AUDIT + ATTACK


def _head(scheme: str) -> str:
    """The commands, with the key of this scheme's noise; where it has none, with one that decides its accuracy."""
    noise = PRESETS[scheme].noise
    if not noise:
        return HEAD.replace("{vary}", "local.lr=1e-3..1").replace(" --epsilon-at-most 8", "")
    limits = "0.5..10"
    if noise[0].endswith("std"):
        limits = "1e-3..1"
    return HEAD.replace("{vary}", f"scheme.{noise[0]}={limits}")


def _scheme_table(scheme: str, target_epsilon: float | None = None) -> str:
    """target_epsilon: what the noise is computed from, in place of the preset's own noise."""
    preset = PRESETS[scheme]
    lines = [*_said("[scheme]", preset.title), f"# {preset.source}", f'name = "{scheme}"']
    for name, field in preset.parameters.model_fields.items():
        value, words = preset.example.get(name, None if field.is_required() else field.default), field.description or ""
        if target_epsilon is not None and name in preset.noise:
            continue
        if name == "target_epsilon":
            value = target_epsilon
            if not preset.noise:
                continue
            words += f" in place of {' and '.join(preset.noise)}"
        lines += _said(f"# {name} =" if value is None else f"{name} = {_toml(value)}", words)
    return "\n".join(lines) + "\n"


def _said(line: str, words: str) -> list[str]:
    """A line with what its value means behind it, or above it where both are too long for one."""
    together = f"{line:<30} # {words}"
    if len(together) <= WIDTH:
        return [together]
    return [*wrap(words, WIDTH, initial_indent="# ", subsequent_indent="# "), line]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)


HEAD = """\
# dpfl-audit config.
# Train:   audit train config.toml -o setup
# Attack:  audit run setup -o results
# Read:    audit report results
# Choose:  audit choose config.toml -o study --vary {vary} --epsilon-at-most 8
name = ""                      # a short human name for the report
seed = 0                       # public: of the data split, the model's start and the order of batches
# claim = "none"               # "paper": ε by the formula of the scheme's paper, which is claimed where nothing is said
                               # and the noise is in its terms; "none"; or a [claim] table of your own, below

"""

DATA = {
    "photos": """\
[data]
name = "photos"                # audit list datasets; root = "…" for downloaded sets, relative to this file
                               # your own: name = "csv", root = "my.csv", target = "outcome"; or npz; or "images", a
                               # folder a class, of which options = { size = 32 } are the pixels a side
# classes = 10                 # of photos; other sets have theirs
clients = 10
samples_per_client = 100       # n, records a client
partition = "iid"              # iid | shards | dirichlet | sorted | writer
# mean = [...]                 # with std: of the first layer, which everybody gets; else published values, or those of
# std = [...]                  # auxiliary records. statistics = "training": the private records', and nothing is proven

""",
    "table": """\
[data]
name = "breast_cancer"         # bundled; yours: name = "csv", root = "my.csv", target = "outcome"
# options = { drop = ["id"] }  # of a csv: columns to leave out; holder = "hospital": who holds a row
clients = 3
samples_per_client = 100       # n, records a client
partition = "iid"              # iid | shards | dirichlet | sorted; of a csv with a holder: writer

""",
    "images": """\
[data]
name = "digits"                # bundled; yours: name = "images", root = "my-pictures" with a folder for every class
# options = { size = 32 }      # of a folder of pictures: pixels a side
clients = 3
samples_per_client = 100       # n, records a client
partition = "iid"              # iid | shards | dirichlet | sorted

""",
}

FILE_DATA = {  # of each kind of records: the data set's name, and the option that people look for first
    "table": ("csv", '# options = { drop = ["id"] }  # columns to leave out; holder = "hospital": who holds a row'),
    "images": ("images", "# options = { size = 32 }      # pixels a side"),
}
DEAL = {
    "table": 'partition = "iid"              # at random; "writer" gives each holder its own rows',
    "images": 'partition = "iid"',
}
ALL_SAMPLES = "# samples_per_client = 100     # n; left out, all records are dealt evenly"

MODEL = {
    "photos": """\
[model]
name = "mlp"                   # audit list models, or "package.module:function" with --allow-model
# options = { widths = [1024, 1024, 1024] }
# batchnorm = "group"          # every BatchNorm becomes a GroupNorm; or "frozen": its statistics become constants

""",
    "table": """\
[model]
name = "logistic"              # audit list models, or "package.module:function" with --allow-model

""",
    "images": """\
[model]
name = "mlp"                   # audit list models, or "package.module:function" with --allow-model
options = { widths = [64] }

""",
}

LOCAL = """\
[local]
optimiser = "adam"             # sgd | momentum | adam | rmsprop
# loss = "focal(gamma=2)"      # cross_entropy | bce_with_logits | focal | squared_error | absolute_error | hinge
lr = 1e-3                      # learning rate, parameter units over gradient units
batch_size = 25                # records a step; a client with fewer takes all it has
epochs = 1                     # n/batch_size steps each, rounded up; or steps = …

"""

CAPTURE = """
[capture]                      # what is kept of the wire
clients = [0]                  # whose uploads, by number
rounds = "all"                 # or the first so many
truth = true                   # keep what these clients trained on, for scoring
candidates = 100               # for membership attacks: records asked for, half of them (at most all) of these
                               # clients, the others with no client (or, for too few, of the test split)

"""

AUDIT = """\
[audit]
delta = 1e-5                   # δ of every ε: a probability, well below 1/clients (or 1/records)
unit = "client"                # whose data one ε hides: record | client
adjacency = "zero_out"         # it sends nothing (zero_out), or another's data, as many, is in its place (replace_one)
observer = "server"            # audit list observers

# [claim]                      # your own ε, instead of the claim above; the rest is as in [audit] where left out
# epsilon = 8.0
# delta = 1e-5                 # at most [audit] delta
# unit = "client"
# adjacency = "zero_out"
# observer = "server"

"""

ATTACK = """\
[attack.inversion]
objective = ["cosine", "euclidean"]     # one or more of cosine | euclidean | euclidean-naive | absolute
iterations = 300               # steps of the optimiser; or preset = "thesis", "inverting-gradients", "dlg" …
lr = 0.1                       # of these steps, in pixel units (0 to 1)
# tv = 0.01                    # weight of the total variation; left out, by the noise, and fixed beside it
labels = "known"               # known | inferred
"""
