"""The commented config that `audit init` prints."""

from __future__ import annotations

from ...defenses.nearest import instead
from ...defenses.presets import PRESETS, current_name
from ..errors import BadInput


def config_template(scheme: str) -> str:
    """A config for `scheme` that trains as it stands, on bundled photographs. Raises BadInput for an unknown scheme."""
    name = current_name(scheme)
    if name not in PRESETS:
        raise BadInput(f"{scheme!r} is not a scheme{instead(name, PRESETS)}")
    return HEAD + _scheme_table(name) + TAIL


def _scheme_table(scheme: str) -> str:
    preset = PRESETS[scheme]
    lines = [f"[scheme]                       # {preset.title}", f"# {preset.source}", f'name = "{scheme}"']
    for name, field in preset.parameters.model_fields.items():
        value = preset.example.get(name, None if field.is_required() else field.default)
        if value is None:
            lines.append(f"# {name} =")
        else:
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


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
name = ""                      # a short human name for the report
seed = 0

[data]
name = "photos"                # audit list datasets; root = "…" for downloaded sets, relative to this file
classes = 10
clients = 10
samples_per_client = 100
partition = "iid"              # iid | shards | dirichlet | sorted | writer
# mean = [...]                 # with std: of the first layer, which everybody gets; else published values, or those of
# std = [...]                  # auxiliary records. statistics = "training": the private records', and nothing is proven

[model]
name = "mlp"                   # audit list models, or "package.module:function" with --allow-model
# options = { widths = [1024, 1024, 1024] }

[local]
optimiser = "adam"             # sgd | momentum | adam | rmsprop
lr = 1e-3
batch_size = 25
epochs = 1                     # or steps = …

"""

TAIL = """
[capture]                      # what is kept of the wire
clients = [0]
rounds = "all"                 # or the first so many
truth = true                   # keep what these clients trained on, for scoring
# candidates = 400             # for membership attacks: records asked for, half of them (at most all) of these
                               # clients, the others of the test split

[audit]
delta = 1e-5
unit = "client"                # record | client
adjacency = "zero_out"         # zero_out | replace_one
observer = "server"            # audit list observers

[attack.inversion]
objective = ["cosine", "euclidean"]     # one or more of cosine | euclidean | euclidean-naive
iterations = 300               # or preset = "thesis", "inverting-gradients", "dlg" …
lr = 0.1
tv = "noise-aware"             # or a weight, e.g. 0.01
labels = "known"               # known | inferred
"""
