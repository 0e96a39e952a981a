"""`audit reproduce`: published tables beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...defenses.nearest import instead
from ..devices import device_named
from ..errors import BadInput, bad_input
from ..files import write_bytes, write_json
from ..lock import writing
from ..options.option import called_with
from .adn_figure_4d import figure_4d
from .component_figure_3 import component_figure_3
from .dager import DagerTable
from .fedavg_dimitrov import DIMITROV
from .geometric import table_3
from .geometric_figure_3 import figure_3
from .iteration_tables import table_iii, table_iv
from .lenet_inversion import DLG, INVERTING_GRADIENTS
from .table import FilledTable, Request, as_csv, markdown, text
from .thesis_4_1 import TABLE_4_1
from .thesis_4_3 import TABLE_4_3
from .thesis_4_4 import table_4_4
from .thesis_4_5 import TABLE_4_5
from .thesis_5_1 import table_5_1


@dataclass(frozen=True)
class PublishedTable:
    """about: one line, with the source. run: fills the table; it raises ValueError or BadInput in one sentence."""

    about: str
    run: Callable[[Request], FilledTable]


TABLES: dict[str, PublishedTable] = {
    "geometric-table3": PublishedTable(
        "membership attack success with and without the geometric mechanism (Yuan et al., Amplitude-Varying"
        " Perturbation, Table III)",
        table_3,
    ),
    "thesis-4.1": PublishedTable(
        "closeness of pixels inverted from one client's gradient, by noise and clip (Weng 2025, table 4.1)",
        TABLE_4_1.run,
    ),
    "thesis-4.3": PublishedTable(
        "inversion of one client's gradient by noise and clip (Weng 2025, table 4.3)", TABLE_4_3.run
    ),
    "thesis-4.4": PublishedTable(
        "inversion in federated and single-end learning, all rounds and one (Weng 2025, table 4.4)", table_4_4
    ),
    "thesis-4.5": PublishedTable(
        "cosine against Euclidean inversion by noise and clip (Weng 2025, table 4.5)", TABLE_4_5.run
    ),
    "thesis-5.1": PublishedTable(
        "accuracy of anonymous learning with an elected leader, by clip (Weng 2025, table 5.1)", table_5_1
    ),
    "geometric-figure3": PublishedTable(
        "final loss by the number of rounds and the noise's ratio (Yuan et al., Amplitude-Varying Perturbation, figure"
        " 3 and table II)",
        figure_3,
    ),
    "component-figure3": PublishedTable(
        "accuracy of component-adaptive noise by optimiser and ε, as printed and by its authors' code (Xue et al., ADN,"
        " figure 3)",
        component_figure_3,
    ),
    "adn-figure4d": PublishedTable(
        "accuracy of component-adaptive noise and of six other schemes by claimed ε (Xue et al., ADN, figure 4d)",
        figure_4d,
    ),
    "iteration-table3": PublishedTable(
        "final loss of a regression with Laplace noise by local steps (Fu et al., Tuning Iteration Times, table III)",
        table_iii,
    ),
    "inverting-gradients-lenet": PublishedTable(
        "single images from their gradients in DLG's LeNet, by cosine and signed Adam (Geiping et al. 2020,"
        " arXiv:2003.14053, table 1)",
        INVERTING_GRADIENTS.run,
    ),
    "dlg": PublishedTable(
        "single images from their gradients in a sigmoid LeNet, by Euclidean distance and L-BFGS (Zhu et al. 2019,"
        " arXiv:1906.08935)",
        DLG.run,
    ),
    "fedavg-dimitrov": PublishedTable(
        "images from an update of several local epochs in a CNN, by its simulation (Dimitrov et al. 2022,"
        " arXiv:2206.12395)",
        DIMITROV.run,
    ),
    "dager": PublishedTable(
        "batches of sentences from one gradient of a language model (Petrov et al. 2024, DAGER, arXiv:2405.15586)",
        DagerTable().run,
    ),
    "iteration-table4": PublishedTable(
        "accuracy of a CNN with Gaussian noise by local steps (Fu et al., Tuning Iteration Times, table IV)", table_iv
    ),
}


@dataclass(frozen=True)
class Reproduction:
    """A reproduced table: plain rows, and the same as text and as markdown.

    notes: what differs from the publication. trends: its findings, answered by these rows.
    """

    name: str
    quick: bool
    rows: list[dict[str, Any]]
    text: str
    markdown: str
    notes: list[str]
    trends: list[dict[str, Any]]

    def document(self) -> dict[str, Any]:
        """JSON-able: what `--json` prints and results.json holds."""
        return {
            "format": 1,
            "table": self.name,
            "about": TABLES[self.name].about,
            "quick": self.quick,
            "rows": self.rows,
            "trends": self.trends,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class TableCall(Request):
    """What `reproduce` is called with. name: a key of `TABLES`."""

    name: str


@called_with(TableCall)
def reproduce(call: TableCall) -> Reproduction:
    """The table `name` of `TABLES`.

    Args:
        name: a key of `TABLES`.
        data_root: folder of data sets (and of weights, where the table needs some).
        data: which data set, where the table leaves a choice.
        quick: fewer shadows, trials or images; every row then says so.
        trials: independent repetitions, None for the publication's number (fewer with `quick`).
        seed: of everything drawn.
        output: a folder for results.json, table.md and table.csv. Finished cells are kept there too: the same command
            goes on where it was killed and ends with the same bytes; more trials of the same table add to those
            there.
        progress: called with the work done and its amount. workers: who makes the cells.
        device: where inversions compute, one of `options.DEVICES`; all else does on the CPU.

    Raises:
        BadInput: one sentence: an unknown table, data that are not there, another table in `output`.
    """
    if call.name not in TABLES:
        raise BadInput(f"there is no table {call.name!r}{instead(call.name, TABLES)}")
    if call.trials is not None and call.trials < 1:
        raise BadInput(f"--trials {call.trials}: at least one is needed")
    request = replace(call, device=device_named(call.device))
    with bad_input(call.name), nullcontext() if call.output is None else writing(call.output):
        filled = TABLES[call.name].run(request)
        title = f"{call.name}: {TABLES[call.name].about}{QUICK if call.quick else ''}"
        rows = [{**row, "quick": call.quick} for row in filled.rows]
        shown, trends = (text(title, filled), markdown(title, filled)), [asdict(answer) for answer in filled.trends]
        reproduction = Reproduction(call.name, call.quick, rows, *shown, list(filled.notes), trends)
        if call.output is not None:
            write_bytes(call.output / "table.md", reproduction.markdown.encode())
            shown_rows = FilledTable(filled.setting, rows, filled.columns, filled.notes)
            write_bytes(call.output / "table.csv", as_csv(shown_rows).encode())
            write_json(call.output / "results.json", reproduction.document())
    return reproduction


QUICK = " [quick: less than published]"
