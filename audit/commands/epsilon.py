"""`audit epsilon`: claimed, proven and demonstrated ε, and the noise for a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import OneOf, common
from .printing import json_document, shown_progress

if TYPE_CHECKING:
    from ..proven.numbers_table import EpsilonTable


@click.command("epsilon")
@click.argument("source", type=click.Path(path_type=Path), required=False)
@click.option("--clip", type=float, help="Without SOURCE: C, the L2 norm that bounds an update.")
@click.option("--noise-std", type=float, help="Without SOURCE: the noise's standard deviation, in the clip's units.")
@click.option(
    "--noise-on", type=click.Choice(["update", "sum"]), help="Noise on each update (default) or on their sum."
)
@click.option("--rounds", type=int, help="Without SOURCE: how many rounds. Default: 1.")
@click.option("--clients", type=int, help="Without SOURCE: how many clients there are. Default: 1.")
@click.option("--cohort", type=int, help="Without SOURCE: how many are drawn for a round. Default: all.")
@click.option("--sampling", type=click.Choice(["fixed", "poisson"]), help="How. Default: fixed, exactly so many.")
@click.option("--claimed", type=float, help="Without SOURCE: an ε that somebody states of these numbers.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="A results folder whose demonstrated ε to show beside."
)
@click.option("--delta", type=float, help="δ; default: the config's.")
@click.option("--unit", type=OneOf(["client", "record", "both"]), default="both", show_default=True)
@click.option("--adjacency", type=OneOf(["zero_out", "replace_one", "both"]), default="both", show_default=True)
@click.option("--observer", "observers", multiple=True, help="Default: server, downlink, model, and the config's.")
@click.option("--target-epsilon", type=float, help="Also say which noise proves this ε: the noise to take.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a config value (SOURCE a config file).",
)
@click.option(
    "--noise-key",
    metavar="FILE",
    help="Price the training with this key (SOURCE a config file). Default: any key, the worst it can draw.",
)
@click.option("--statement", "in_words", is_flag=True, help="Also say in sentences what is guaranteed.")
@common
def command(
    source: Path | None,
    delta: float | None,
    unit: str,
    adjacency: str,
    target_epsilon: float | None,
    results: Path | None,
    observers: tuple[str, ...],
    overrides: tuple[str, ...],
    noise_key: str | None,
    in_words: bool,
    as_json: bool,
    quiet: bool,
    **bare: Any,
) -> None:
    """Claimed, proven and demonstrated ε of SOURCE, a config (nothing is trained) or a setup folder; or ε of numbers.

    \b
    Example:  audit epsilon config.toml --unit client --adjacency zero_out
              audit epsilon --clip 1 --noise-std .5 --rounds 50 --clients 100 --cohort 10 --claimed 10
              audit epsilon --clip 1 --rounds 50 --unit client --adjacency zero_out --target-epsilon 8
    """
    progress = shown_progress(quiet)
    from ..proven.numbers_table import text

    asked: dict[str, Any] = {"delta": delta, "unit": unit, "adjacency": adjacency, "target_epsilon": target_epsilon}
    numbers = {name: value for name, value in bare.items() if value is not None}
    if source is not None:
        if numbers:
            raise click.UsageError("bare numbers (--clip, --rounds, …) go without SOURCE, which has its own; use --set")
        from ..proven.table import table as table_of
        from ..setup.key import given_key

        more: dict[str, Any] = {"observers": observers, "results": results, "overrides": overrides}
        table = table_of(source, key=given_key(noise_key), progress=progress, **asked, **more)
    else:
        beside = {"--results": results, "--observer": observers, "--noise-key": noise_key, "--set": overrides}
        table = _of_numbers(numbers, asked, [name for name, value in beside.items() if value])
    progress.close()
    click.echo(json_document(table.document()) if as_json else text(table))
    if in_words and not as_json:
        from ..say.statement import statement

        click.echo("\n" + "\n\n".join(statement(table.rows, table.secret)))


def _of_numbers(numbers: dict[str, Any], asked: dict[str, Any], of_source: list[str]) -> EpsilonTable:
    """numbers: by option, those that were typed. of_source: options typed that only a config or a setup can answer."""
    from ..proven.numbers import Numbers
    from ..proven.numbers_table import numbers_table

    if "clip" not in numbers or ("noise_std" not in numbers and asked["target_epsilon"] is None):
        raise click.UsageError(
            "give a config or a setup, or the numbers themselves with --clip and --noise-std (or --target-epsilon)"
        )
    if of_source:
        raise click.UsageError(
            f"{' and '.join(of_source)} {'asks' if len(of_source) == 1 else 'ask'} about a config or a setup, and none"
            " is given: audit epsilon CONFIG …"
        )
    if "sampling" in numbers and "cohort" not in numbers:
        raise click.UsageError("--sampling says how a --cohort is drawn; without one everybody is in every round")
    claimed = numbers.pop("claimed", None)
    mechanism = Numbers(**{"noise_std": 1.0, **numbers})
    return numbers_table(mechanism, claimed=claimed, noise_given="noise_std" in numbers, **asked)
