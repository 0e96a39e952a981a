"""`audit epsilon`: claimed, proven and demonstrated ε, and the noise for a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options.epsilon import NumberOptions, RowOptions, SourceOptions
from ..options.option import takes_options
from ..options.shared import PrintOptions
from .options import printing
from .printing import json_document, shown_progress

if TYPE_CHECKING:
    from ..proven.numbers_table import EpsilonTable


@click.command("epsilon")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=click.Path(path_type=Path))
@takes_options("numbers", NumberOptions)
@takes_options("of_source", SourceOptions)
@takes_options("rows", RowOptions)
@click.option("--statement", "in_words", is_flag=True, help="Also say in sentences what is guaranteed.")
@printing
def command(
    sources: tuple[Path, ...],
    numbers: NumberOptions,
    of_source: SourceOptions,
    rows: RowOptions,
    in_words: bool,
    printing: PrintOptions,
) -> None:
    """Claimed, proven and demonstrated ε of SOURCE, a config (nothing is trained) or a setup folder; or ε of numbers.
    Of several, the ε of whoever sees the trainings of all, as of the same people.

    \b
    Example:  audit epsilon config.toml --unit client --adjacency zero_out
              audit epsilon --clip 1 --noise-std .5 --rounds 50 --clients 100 --cohort 10 --claimed 10
              audit epsilon --clip 1 --noise-std 1.1 --records 60000 --batch 256 --rounds 14062
              audit epsilon --clip 1 --rounds 50 --unit client --adjacency zero_out --target-epsilon 8
    """
    progress = shown_progress(printing.quiet)
    from ..proven.numbers_table import text

    if sources:
        if numbers.typed:
            raise click.UsageError("bare numbers (--clip, --rounds, …) go without SOURCE, which has its own; use --set")
        from ..proven.table import table as table_of
        from ..setup.key import given_key

        asked = vars(of_source) | vars(rows)
        asked["key"] = given_key(asked.pop("noise_key"))
        if len(sources) > 1:
            from ..proven.together import together

            of_one = asked.pop("results"), asked.pop("target_epsilon")
            if of_one != (None, None):
                raise click.UsageError("--results and --target-epsilon are about one SOURCE")
            table = together(sources, progress=progress, **asked)
        else:
            table = table_of(sources[0], progress=progress, **asked)
    else:
        table = _of_numbers(numbers.typed, vars(rows), of_source.typed)
    progress.close()
    click.echo(json_document(table.document()) if printing.as_json else text(table))
    if in_words and not printing.as_json:
        from ..say.board import SPENT_APART
        from ..say.statement import statement

        spent = [SPENT_APART] if table.spent else []
        click.echo("\n" + "\n\n".join([*statement(table.rows), *spent]))


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
