"""`audit choose`: noise and clipping, chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options import BESTS, ROWS, SEARCHES, Best
from .options import OneOf, common, on_device, on_ray
from .printing import json_document, shown_progress, workers_at


@click.command("choose")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The study folder to write.")
@click.option(
    "--vary",
    multiple=True,
    metavar="TABLE.KEY=VALUES",
    required=True,
    help="What may change: values (scheme.clip=0.1,1,10) or a range (scheme.noise_std=1e-4..1e-1); may be repeated.",
)
@click.option("--accuracy-at-least", type=float, help="Of the final model on test records, such as .7.")
@click.option("--reidentified-at-most", type=float, help="Images, or rows of a table, that an inversion picks out.")
@click.option("--leakage-at-most", type=float, help="Records that any attack singles out, beyond chance. Default: .1.")
@click.option("--epsilon-at-most", type=float, help="Proven, for [audit]'s observer, unit, adjacency and δ.")
@click.option("--best", type=OneOf(BESTS), default=BESTS[0], show_default=True, help="Among these.")
@click.option("--trials", type=int, default=24, show_default=True, help="How many settings to look at.")
@click.option(
    "--on",
    "rows",
    type=OneOf(ROWS),
    help="Whose records to try settings on. Default: auxiliary ones, which cost nobody any ε, where there are enough.",
)
@click.option("--search", type=OneOf(SEARCHES), default=SEARCHES[0], show_default=True)
@click.option("--seeds", type=int, default=3, show_default=True, help="How often the best setting is trained again.")
@click.option(
    "--minutes",
    type=float,
    default=6.0,
    show_default=True,
    help="For the attacks on it, all seeds together; counted from shapes, for two cores.",
)
@click.option(
    "--baseline/--no-baseline",
    default=None,
    help="Also train it without clip and noise, to compare accuracy with. Default: on auxiliary records, as it reveals"
    " what it is trained on.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override a config value; may be repeated."
)
@click.option(
    "--noise-key",
    metavar="FILE",
    help="Draw noise with keys made of this one (64 hex digits; `published` for one that is no secret). Default: a"
    " fresh one, kept in STUDY/auditor/noise-key.",
)
@click.option(
    "--allow-model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Import this model of yours, from here or installed, by repeating the config's [model] name.",
)
@click.option("--force", is_flag=True, help="Replace a different study in the output folder.")
@on_device
@on_ray
@common
def command(
    config: Path,
    output: Path,
    accuracy_at_least: float | None,
    reidentified_at_most: float | None,
    leakage_at_most: float | None,
    epsilon_at_most: float | None,
    best: Best,
    noise_key: str | None,
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Choose the noise and clipping of CONFIG: train, attack and price many settings, and attack the best one again. A
    killed study goes on where it was. Exit code 1: no setting keeps what is asked.

    \b
    Example:  audit choose config.toml -o study --vary scheme.sigma=1e-2..10 --vary scheme.clip=0.1,1
              audit choose config.toml -o other --vary scheme.noise_multiplier=.01..10 --accuracy-at-least .7
    """
    progress = shown_progress(quiet)
    from ..choose.carry_out import carry_out_study
    from ..choose.goals import Goals
    from ..choose.opening import StudyOptions
    from ..choose.outputs import document
    from ..setup.key import given_key

    goals = Goals(accuracy_at_least, reidentified_at_most, leakage_at_most, epsilon_at_most, best)
    options = StudyOptions(goals=goals, key=given_key(noise_key), **given)
    remark = None if quiet else progress.note
    study = carry_out_study(
        config, output, options, force=force, progress=progress, workers=workers_at(ray), remark=remark
    )
    progress.close()
    if as_json:
        click.echo(json_document({"study": str(output), **document(study)}))
    elif not quiet:
        warned = filter(None, [study.useless, study.weaker])
        click.echo("\n".join((study.sentence, *warned, *study.price.sentences, str(output / "study.html"))))
    return 0 if study.chosen is not None else 1
