"""The command line: parse, call, print; nothing else."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from dpfl_audit import __version__
from dpfl_audit.audit.options import DEVICES, ENGINES

if TYPE_CHECKING:
    from dpfl_audit.audit.progress import Reporter
    from dpfl_audit.defenses.workers import Workers

# Threads that wait for each other by spinning make everything tens of times slower as soon as another program wants a
# core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

NETS = ("squeeze", "alex")  # what LPIPS can look through; the first is the smaller one

COMMON: list[Callable] = [
    click.option("--quiet", is_flag=True, help="No progress, no summary; errors only."),
    click.option("--debug", is_flag=True, help="A traceback where something goes wrong."),
]


class OneOf(click.Choice):
    """A choice that asks what was meant by a word that is none of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from dpfl_audit.defenses.nearest import instead

        if value not in self.choices:
            self.fail(f"{value!r} cannot be chosen{instead(value, self.choices)}")
        return super().convert(value, param, ctx)


on_ray = click.option(
    "--ray",
    metavar="auto|ADDRESS",
    help="Let a Ray cluster do the work: HOST:PORT of one that this machine is a node of; auto for the one in"
    " RAY_ADDRESS, else all cores of this machine. The bytes are the same.",
)
json_too = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; notes and progress go to stderr."
)


gates_too = click.option(
    "--fail-if",
    "gates",
    multiple=True,
    metavar="'METRIC > NUMBER'",
    help="Exit with 1 if this holds for the worst value: 'reidentified > 0.2', 'level >= high',"
    " 'proof != proven', 'proven[client,server] > 10'.",
)
junit_too = click.option(
    "--junit", type=click.Path(path_type=Path), help="Also write the gates of --fail-if as JUnit XML to this file."
)
log_too = click.option(
    "--log-to",
    "trackers",
    multiple=True,
    metavar="mlflow|tensorboard:DIR",
    help="Also send the numbers to MLflow (its own tracking URI) or to TensorBoard event files in DIR.",
)


def common(command: Callable) -> Callable:
    for option in reversed(COMMON):
        command = option(command)
    return command


def main(argv: list[str] | None = None) -> None:
    """Entry point of `audit`: 0 done, 1 a --fail-if gate failed, 2 bad input, 130 interrupted (the same command
    resumes).
    """
    arguments = sys.argv[1:] if argv is None else argv
    # Ledgers are many small objects without cycles: Python's default of a collection every 700 new ones took 3 of the
    # 7 s that 5,000 clients × 10 rounds are priced in.
    gc.set_threshold(100_000, 20, 20)
    try:
        status = audit(arguments, prog_name="audit", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; the same command goes on where it was.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"audit: {_sentence(error.format_message())}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:  # a full disk, a folder without permission
        if "--debug" in arguments:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename is not None else ""
        click.echo(f"audit: {_sentence(f'{where}{error.strerror or error}')}", err=True)
        sys.exit(2)
    except Exception as error:
        from dpfl_audit.audit.errors import BadInput

        if "--debug" in arguments:
            traceback.print_exc()
        elif isinstance(error, BadInput):
            click.echo(f"audit: {_sentence(error)}", err=True)
        else:
            click.echo(
                f"audit: internal error ({type(error).__name__}: {error}); run again with --debug and report it",
                err=True,
            )
        sys.exit(2 if isinstance(error, BadInput) else 70)


def _sentence(error: object) -> str:
    """One printable line: what a stranger put into a name must not steer the terminal."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= 500 else f"{text[:300]} … {text[-200:]}"


@click.group(
    help="What does a differentially private federated learning setup leak: claimed, proven, demonstrated.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="audit")
def audit() -> None:
    pass


@audit.command()
@click.argument("scheme", default="ldp")
@json_too
@common
def init(scheme: str, as_json: bool, quiet: bool, debug: bool) -> None:
    """Print a commented config for SCHEME.

    \b
    Example:  audit init ldp > config.toml
    """
    from dpfl_audit.audit.setup.template import config_template

    template = config_template(scheme)
    click.echo(_json(tomllib.loads(template)) if as_json else template, nl=as_json)


@audit.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The setup folder to write.")
@click.option(
    "--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override a config value; may be repeated."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Override the config's seed.")
@click.option(
    "--noise-key",
    metavar="FILE",
    help="Draw noise with this key (64 hex digits; `published` for one that is no secret). Default: a fresh one,"
    " kept in SETUP/auditor/noise-key.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be trained and how much it would take on disk.")
@click.option(
    "--engine",
    type=OneOf(ENGINES),
    help="batched: all clients of a round as one; looped: one by one; sliced: 100 by 100, for large cohorts. Default:"
    " batched; with --ray sliced, whose slices go to the workers.",
)
@click.option(
    "--allow-model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Import this model of yours, from here or installed, by repeating the config's [model] name. It is called as"
    " FUNCTION(input_shape, classes, **options) and returns a torch.nn.Module.",
)
@click.option("--force", is_flag=True, help="Replace a different setup in the output folder.")
@on_ray
@json_too
@common
def train(
    config: Path,
    output: Path | None,
    overrides: tuple[str, ...],
    seed: int | None,
    noise_key: str | None,
    dry_run: bool,
    engine: str | None,
    allow_model: str | None,
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Train the federation of CONFIG and capture its messages into a setup folder. A killed run goes on where it was.

    \b
    Example:  audit train config.toml -o setup --set scheme.sigma=0.5
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.canary.plan import canary_settings
    from dpfl_audit.audit.proven.target import build
    from dpfl_audit.audit.setup import capture
    from dpfl_audit.audit.setup.config import CANARY
    from dpfl_audit.audit.setup.folder import open_setup
    from dpfl_audit.audit.setup.key import given_key
    from dpfl_audit.audit.setup.remarks import ending, remarks

    if ray is not None and engine not in (None, "sliced"):
        raise click.UsageError(
            f"--ray deals slices of a cohort to workers, and --engine {engine} makes none; leave it out"
        )
    engine = engine or ("batched" if ray is None else "sliced")
    key = given_key(noise_key)
    parsed = _config(config, overrides, seed)
    canary_settings(parsed.attack.get(CANARY, {}))  # now, and not after a long training
    experiment = build(parsed, config.parent, allow_model)
    for remark in remarks(experiment, engine) if not quiet else ():
        progress.note(remark)
    if dry_run:
        progress.close()
        plan = capture.planned_bytes(experiment)
        click.echo(
            _json(plan)
            if as_json
            else f"{plan['rounds']} rounds, {plan['parameters']:,} parameters; {plan['uploads']} uploads and"
            f" {plan['broadcasts']} broadcasts kept: {plan['bytes'] / 2**20:.1f} MiB, and"
            f" {plan['state_bytes'] / 2**20:.1f} MiB more while it runs"
        )
        return
    if output is None:
        raise click.UsageError("give the setup folder with -o SETUP")
    capture.train(experiment, output, key=key, force=force, engine=engine, progress=progress, workers=_workers(ray))
    progress.close()
    ended = ending(output, experiment)
    if as_json:
        if ended is not None and not quiet:
            progress.note(ended)
        click.echo(_json({"setup": str(output), "ended": ended, **open_setup(output).summary}))
    elif not quiet:
        if ended is not None:
            click.echo(ended)
        click.echo(str(output))


@audit.command("import")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The setup folder to write.")
@click.option(
    "--layout",
    metavar="rounds|files|PATTERN",
    default="rounds",
    show_default=True,
    help="Which file holds what: round-0.npz with all of a round; round-0/client-3.npz with one upload; or a pattern of"
    " yours for uploads, 'r{round}/site{client}.npz'. .safetensors goes too.",
)
@click.option("--broadcasts", metavar="PATTERN", help="With a pattern: the models sent out, 'r{round}/global.npz'.")
@click.option(
    "--declared",
    type=click.Path(path_type=Path),
    help="TOML of what you state: [mechanism] clip, noise_std, by; [claim] epsilon; [model], [data], …",
)
@json_too
@common
def import_(
    dump: Path,
    output: Path | None,
    layout: str,
    broadcasts: str | None,
    declared: Path | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """A setup of a training that something else did: DUMP holds its rounds as .npz or .safetensors. Without -o DUMP is
    an unfinished recording, which is closed with the whole rounds it has.

    \b
    Example:  audit import dump -o setup --layout 'r{round}/site{client}.npz' --broadcasts 'r{round}/global.npz'
              audit import setup
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.record.dump import import_dump
    from dpfl_audit.audit.record.recorder import finish
    from dpfl_audit.audit.setup.folder import open_setup

    if output is None:
        made = finish(dump)
    else:
        made = import_dump(dump, output, layout, broadcasts=broadcasts, declared=declared, progress=progress)
    progress.close()
    if as_json:
        click.echo(_json({"setup": str(made), **open_setup(made).summary}))
    elif not quiet:
        click.echo(str(made))


@audit.command()
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Also every detail of the format, for tools that write it.")
@json_too
@common
def check(setup: Path, strict: bool, as_json: bool, quiet: bool, debug: bool) -> None:
    """Check every file of a setup folder; exit code 2 and one sentence where something is wrong.

    \b
    Example:  audit check setup
    """
    from dpfl_audit.audit.errors import BadInput
    from dpfl_audit.audit.setup.auditor import check_setup
    from dpfl_audit.audit.setup.strict import faults

    found, auditor = check_setup(setup)
    if strict and (wrong := faults(found, auditor)):
        for fault in wrong if not quiet else ():
            click.echo(fault, err=True)
        raise BadInput(f"{setup}: {len(wrong)} things are not as docs/setup-format.md says")
    m, truth, key = found.manifest, auditor.truth is not None, auditor.ledger is not None
    published = not auditor.key_is_secret
    kept = auditor.knows_key or m.recorded is not None  # nobody here drew a recording's noise
    if as_json:
        there = {"truth": truth, "auditor": key, "noise_key": auditor.knows_key, "edited": auditor.edited}
        there |= {"key_is_published": published}
        if m.recorded is not None:
            there["declared"] = [declaration.model_dump() for declaration in auditor.declared]
        click.echo(_json({"setup": str(setup), **found.summary, **there}))
    elif not quiet:
        click.echo(
            f"{setup} is whole: {m.scheme.name}, {m.rounds} rounds, {len(found.messages)} messages of"
            f" {m.model.parameters:,} numbers, truth {'present' if truth else 'absent'}, auditor's key"
            f" {'present' if key and kept else 'absent'}"
            + ("; its key is published, so whoever has the config can draw the noise again" if published else "")
            + ("; auditor/noise-key is gone, and cannot be made again" if key and not kept else "")
            + (f"; recorded by {m.recorded.by}" if m.recorded is not None else "")
            + (f"; changed after training: {', '.join(auditor.edited)}" if auditor.edited else "")
            + ("; training diverged in round 0: nothing to attack" if found.diverged_at_once else "")
        )
        for declaration in auditor.declared:
            click.echo(f"{declaration.status}: {declaration.what}: {declaration.said} ({declaration.why})")


@audit.command()
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The results folder to write.")
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    help="An attack (`audit list attacks`); may be repeated. auto: an inversion by the preset that suits what the"
    " observer is told. Default: every one that applies, within --minutes.",
)
@click.option(
    "--minutes",
    type=float,
    help="Without --attack: run the attacks that apply, the cheapest first, canaries too, as far as this goes. Counted"
    " from shapes, for two cores, and never by a clock: the same command runs the same attacks everywhere. Default: 60,"
    " without canaries.",
)
@click.option(
    "--observer", "observers", multiple=True, help="Who attacks (`audit list observers`). Default: the config's."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="ATTACK.KEY=VALUE",
    help="Override an attack's setting, e.g. inversion.iterations=1000.",
)
@click.option(
    "--ablate",
    is_flag=True,
    help="Also run the inversion without each piece of what it knows (labels, noise, clip, local training,"
    " normalisation statistics), one at a time: what each is worth to the attacker. No verdict or gate is on these.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@click.option(
    "--device",
    type=OneOf(DEVICES),
    default=DEVICES[0],
    show_default=True,
    help="Where inversions compute; all else does on the CPU. auto: on CUDA where there is one.",
)
@click.option("--lpips-weights", type=click.Path(path_type=Path), help="File or folder of LPIPS backbone weights.")
@gates_too
@junit_too
@log_too
@click.option(
    "--allow-model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Import this model of yours, from here or installed, by repeating the setup's [model] name. It is called as"
    " FUNCTION(input_shape, classes, **options) and returns a torch.nn.Module.",
)
@click.option("--quick", is_flag=True, help="A third of the iterations and one message; the report says so.")
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@on_ray
@json_too
@common
def run(
    setup: Path,
    output: Path,
    attacks: tuple[str, ...],
    minutes: float | None,
    observers: tuple[str, ...],
    overrides: tuple[str, ...],
    ablate: bool,
    seed: int,
    device: str,
    lpips_weights: Path | None,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    allow_model: str | None,
    quick: bool,
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Attack what SETUP captured, score the evidence and write results. A killed run goes on where it was.

    \b
    Example:  audit run setup -o results --fail-if 'reidentified > 0.2'
              audit run setup -o pictures --attack auto
              audit run setup -o worth --ablate
    """
    progress = _progress(quiet)
    from dpfl_audit.audit import run as runner
    from dpfl_audit.audit.ci.tracking import opened_trackers
    from dpfl_audit.audit.results.ablation import stronger_without, worth_json, worth_lines
    from dpfl_audit.audit.results.gates import parse_gate
    from dpfl_audit.audit.results.warnings import declared_said, not_run, not_tested, picked_said

    parsed, logs = [parse_gate(text) for text in gates], opened_trackers(trackers)
    options = runner.RunOptions(
        attacks=attacks,
        minutes=minutes,
        observers=observers,
        overrides=overrides,
        seed=seed,
        device=device,
        lpips_weights=lpips_weights,
        quick=quick,
        allow_model=allow_model,
        ablate=ablate,
    )
    job = runner.opened(setup, options)
    runner.check_gates(parsed, job)
    results = runner.carry_out(job, output, force=force, progress=progress, workers=_workers(ray))
    progress.close()
    if not (quiet or as_json):
        lacks = (*declared_said(results.setup), *not_run(results), *not_tested(results.epsilon))
        picked = dict.fromkeys(filter(None, (picked_said(attack.settings) for attack in results.attacks)))
        said = (*results.verdict.sentences, *stronger_without(results), *picked, *worth_lines(results), *lacks)
        click.echo("\n".join((*said, str(output))))
    for log in logs:
        log(results)
    status, gated = _judged(parsed, results, junit, quiet or as_json)
    if as_json:
        worth = {"worth": worth_json(results)} if results.ablated else {}
        dumped = results.model_dump(by_alias=True)
        click.echo(_json({"folder": str(output), "gates": gated, **worth, "results": dumped}))
    return status


@audit.command()
@click.argument("what", metavar="FILE.py:FUNCTION|CONFIG.toml")
@click.option("--claim", type=click.FloatRange(0), help="The ε that is claimed.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), help="Its δ; 0 for pure DP.")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@click.option("--unit", type=OneOf(["client", "record"]), help="What the canary is. Default: client.")
@click.option("--adjacency", type=OneOf(["zero_out", "replace_one"]), help="How the worlds differ. Default: zero_out.")
@click.option("--observer", help="Who gets what the function returns. Default: server.")
@click.option(
    "--candidates", metavar="FILE.py:NAME", help="Canaries to choose from: a list, a dict, or what makes one."
)
@click.option("--noiseless", metavar="FILE.py:FUNCTION", help="The same without noise, if you know it: world → vector.")
@click.option(
    "--draws", type=click.IntRange(10), help="Tested calls a world at most. Default: 1,000, or what the claim takes."
)
@click.option(
    "--calibration", type=click.IntRange(10), help="Calls a world to learn from. Default: a quarter of them, 50 to 100."
)
@click.option("--sizes", type=click.IntRange(1), multiple=True, help="Numbers in each tensor of the vector, in order.")
@click.option("--rounds", type=click.IntRange(1), help="Messages in a vector, of equal length. Default: 1.")
@click.option("--rate", type=click.FloatRange(0, 1, min_open=True), help="The secret chance that each has the canary.")
@click.option(
    "--gaussian",
    is_flag=True,
    default=None,
    help="The noise is known to be Gaussian and added last, and nothing sampled.",
)
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Default: 0.95.")
@click.option(
    "--stop/--all-draws",
    default=None,
    help="Whether calls end once the claim is refuted or cannot be. Default: they do.",
)
@click.option(
    "--same-steps/--any-steps",
    default=None,
    help="Whether worlds that always take unequal numbers of optimiser steps are refused. Default: they are.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Of all draws. Default: 0.")
@gates_too
@junit_too
@log_too
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@json_too
@common
def mechanism(
    what: str,
    output: Path | None,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **given: Any,
) -> int:
    """A lower bound on the ε of a function of your own: (world, seed) → the vector that an observer gets, world True
    with your canary and False without, all noise from seed. It is called thousands of times, in either world. WHAT is
    the function, which is run, or a config with a [mechanism] table.

    \b
    Example:  audit mechanism my.py:update --claim 8 --delta 1e-5 -o results
              audit mechanism my.py:update --claim 8 --delta 1e-5 --fail-if 'demonstrated > 8'
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.ci.tracking import opened_trackers
    from dpfl_audit.audit.mechanism.request import MechanismRequest
    from dpfl_audit.audit.results.gates import parse_gate

    parsed, logs = [parse_gate(text) for text in gates], opened_trackers(trackers)
    request = MechanismRequest.of(what, {**given, "sizes": given["sizes"] or None})
    request.check(parsed, output, force)
    made = request.audit(progress, output, force=force)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return _own(made, output, parsed, logs, junit, quiet, as_json)


@audit.command()
@click.argument("app", metavar="FILE.py|MODULE|FOLDER[:NAME]")
@click.option("--claim", type=click.FloatRange(0), help="The ε that is claimed. Default: the app's LocalDpMod's.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), help="Its δ. Default: the app's LocalDpMod's.")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@click.option(
    "--canary",
    metavar="auto|NAME",
    default="auto",
    show_default=True,
    help="auto: what moves most of, for a client, trained, long, scalars; for a record existing, mislabelled, blank,"
    " crafted.",
)
@click.option(
    "--data",
    metavar="NAME|FILE.py:NAME",
    help="The function that loads a client's records: the canary is then one of them, and not the client's reply.",
)
@click.option("--unit", type=OneOf(["client", "record"]), help="Default: record with --data, else client.")
@click.option("--adjacency", type=OneOf(["zero_out", "replace_one"]), help="How the worlds differ. Default: zero_out.")
@click.option(
    "--observer", help="server (gets replies) or downlink (gets models). Default: whom the app's noise is for."
)
@click.option("--server", metavar="FILE.py|MODULE[:NAME]", help="The ServerApp, which is asked what it sends.")
@click.option("--model", metavar="FILE.py:NAME", help="Without a ServerApp: the network whose weights are sent.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the app's run config.")
@click.option("--client", type=click.IntRange(0), help="The partition audited. Default: 0.")
@click.option("--clients", type=click.IntRange(1), help="How many clients there are. Default: 10.")
@click.option("--draws", type=click.IntRange(10), help="Tested draws a world. Default: 1,000, or what the claim takes.")
@click.option("--calibration", type=click.IntRange(10), help="Draws a world to learn from. Default: a quarter of them.")
@click.option(
    "--anew/--once",
    default=None,
    help="Train in every draw, or once. Default: once, where noise is known to come after training.",
)
@click.option(
    "--gaussian/--any-noise", default=None, help="Whether noise is known to be Gaussian. Default: as it says."
)
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Default: 0.95.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Of all draws. Default: 0.")
@gates_too
@junit_too
@log_too
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@json_too
@common
def flower(
    app: str,
    output: Path | None,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **given: Any,
) -> int:
    """A lower bound on the ε of a Flower app: its own client function, mods and strategy, in one round, with a canary
    and without. The app is imported and run: its server until it sends something, a client's training once. APP is
    where its ClientApp is, or its folder with pyproject.toml.

    \b
    Example:  audit flower my_app.py --claim 8 --delta 1e-5 -o results
              audit flower my_app.py --data load_data --adjacency replace_one --claim 8
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.ci.tracking import opened_trackers
    from dpfl_audit.audit.mechanism.flower.request import FlowerRequest
    from dpfl_audit.audit.results.gates import parse_gate

    parsed, logs = [parse_gate(text) for text in gates], opened_trackers(trackers)
    request = FlowerRequest.of(app, given)
    request.check(parsed, output, force)
    made = request.audit(progress)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return _own(made, output, parsed, logs, junit, quiet, as_json)


@audit.command()
@click.argument("before", metavar="RESULTS_A", type=click.Path(path_type=Path))
@click.argument("after", metavar="RESULTS_B", type=click.Path(path_type=Path))
@json_too
@common
def diff(before: Path, after: Path, as_json: bool, quiet: bool, debug: bool) -> int:
    """What leaked more in RESULTS_B than in RESULTS_A, and what the bounds did. Exit code 1: a regression beyond the
    intervals, or something that only RESULTS_A measured.

    \b
    Example:  audit diff released candidate
    """
    from dpfl_audit.audit.ci.diff import compared
    from dpfl_audit.audit.results.format import Results

    comparison = compared(Results.read(before), Results.read(after))
    if as_json:
        click.echo(_json(comparison.document()))
    elif not quiet:
        click.echo(comparison.text)
    return 1 if comparison.regressions else 0


@audit.command()
@click.argument("results", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The page to write. Default: report.html in the (first) results folder.",
)
@click.option(
    "--format",
    "form",
    type=OneOf(["html", "json", "csv", "md"]),
    help="Default: html. csv: one row a number, for pandas or a spreadsheet.",
)
@click.option(
    "--card",
    type=click.Path(path_type=Path),
    help="Write the claim card of one setup instead: card.md by NIST SP 800-226, card.yaml for OpenDP's registry.",
)
@click.option("--card-from", type=click.Path(path_type=Path), help="TOML of what only the owner can state on the card.")
@json_too
@common
def report(
    results: tuple[Path, ...],
    output: Path | None,
    form: str | None,
    card: Path | None,
    card_from: Path | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Write the leakage report of one results folder, or of several side by side. With --json and without -o the
    report itself is JSON; with -o or --card, what was written is told in JSON.

    \b
    Example:  audit report results-a results-b -o page.html
              audit report results --card card.md
    """
    from dpfl_audit.audit.errors import bad_input

    if card is not None:
        from dpfl_audit.audit.report.card import write_card

        if output is not None or form is not None:
            raise click.UsageError("--card writes a claim card in the page's place; leave -o and --format out")
        with bad_input(""):
            written = write_card(results, card, card_from)
        if as_json:
            click.echo(_json({"card": str(written)}))
        elif not quiet:
            click.echo(str(written))
        return
    if card_from is not None:
        raise click.UsageError("--card-from says what stands on a claim card; name its file with --card card.md")
    from dpfl_audit.audit.report.render import render

    if as_json and output is None and form not in (None, "json"):
        raise click.UsageError(f"--format {form} prints no JSON; give -o FILE, or leave --format out")
    form = form or ("json" if as_json and output is None else "html")
    if form == "html" and output is None:
        output = results[0] / "report.html"
    with bad_input(""):
        made = render(list(results), output, cast(Any, form))
    if output is not None and as_json:
        click.echo(_json({"report": str(made), "format": form}))
    elif not quiet or output is None:
        click.echo(str(made))


@audit.command()
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
@json_too
@common
def epsilon(
    source: Path | None,
    clip: float | None,
    noise_std: float | None,
    noise_on: str | None,
    rounds: int | None,
    clients: int | None,
    cohort: int | None,
    sampling: str | None,
    claimed: float | None,
    results: Path | None,
    delta: float | None,
    unit: str,
    adjacency: str,
    observers: tuple[str, ...],
    target_epsilon: float | None,
    overrides: tuple[str, ...],
    noise_key: str | None,
    in_words: bool,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Claimed, proven and demonstrated ε of SOURCE, a config (nothing is trained) or a setup folder; or ε of numbers.

    \b
    Example:  audit epsilon config.toml --unit client --adjacency zero_out
              audit epsilon --clip 1 --noise-std .5 --rounds 50 --clients 100 --cohort 10 --claimed 10
              audit epsilon --clip 1 --rounds 50 --unit client --adjacency zero_out --target-epsilon 8
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.proven.numbers import Numbers
    from dpfl_audit.audit.proven.numbers_table import numbers_table, text

    given = {"rounds": rounds, "clients": clients, "cohort": cohort, "noise_on": noise_on, "sampling": sampling}
    numbers: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if source is not None:
        if clip is not None or noise_std is not None or claimed is not None or numbers:
            raise click.UsageError("bare numbers (--clip, --rounds, …) go without SOURCE, which has its own; use --set")
        from dpfl_audit.audit.proven.table import table as table_of
        from dpfl_audit.audit.setup.key import given_key

        table = table_of(
            source,
            delta=delta,
            unit=unit,
            adjacency=adjacency,
            observers=observers,
            target_epsilon=target_epsilon,
            results=results,
            overrides=overrides,
            key=given_key(noise_key),
            progress=progress,
        )
    else:
        if clip is None or (noise_std is None and target_epsilon is None):
            raise click.UsageError(
                "give a config or a setup, or the numbers themselves with --clip and --noise-std (or --target-epsilon)"
            )
        if results or observers or overrides or noise_key:
            options = ("--results", results), ("--observer", observers), ("--noise-key", noise_key)
            typed = [name for name, value in (*options, ("--set", overrides)) if value]
            raise click.UsageError(
                f"{' and '.join(typed)} {'asks' if len(typed) == 1 else 'ask'} about a config or a setup, and none is"
                " given: audit epsilon CONFIG …"
            )
        if sampling is not None and cohort is None:
            raise click.UsageError("--sampling says how a --cohort is drawn; without one everybody is in every round")
        mechanism = Numbers(clip, 1.0 if noise_std is None else noise_std, **numbers)
        table = numbers_table(
            mechanism,
            claimed=claimed,
            delta=delta,
            unit=unit,
            adjacency=adjacency,
            target_epsilon=target_epsilon,
            noise_given=noise_std is not None,
        )
    progress.close()
    click.echo(_json(table.document()) if as_json else text(table))
    if in_words and not as_json:
        from dpfl_audit.audit.report.statement import statement

        click.echo("\n" + "\n\n".join(statement(table.rows, table.secret)))


@audit.command()
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
@click.option("--reidentified-at-most", type=float, help="Of the images that an inversion's pictures are matched to.")
@click.option("--leakage-at-most", type=float, help="Records that any attack singles out, beyond chance. Default: .1.")
@click.option("--epsilon-at-most", type=float, help="Proven, for [audit]'s observer, unit, adjacency and δ.")
@click.option("--best", type=OneOf(["accuracy", "privacy"]), default="accuracy", show_default=True, help="Among these.")
@click.option("--trials", type=int, default=24, show_default=True, help="How many settings to look at.")
@click.option(
    "--on",
    "rows",
    type=OneOf(["auxiliary", "training"]),
    help="Whose records to try settings on. Default: auxiliary ones, which cost nobody any ε, where there are enough.",
)
@click.option("--search", type=OneOf(["auto", "random"]), default="auto", show_default=True)
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
@on_ray
@json_too
@common
def choose(
    config: Path,
    output: Path,
    vary: tuple[str, ...],
    accuracy_at_least: float | None,
    reidentified_at_most: float | None,
    leakage_at_most: float | None,
    epsilon_at_most: float | None,
    best: str,
    trials: int,
    rows: str | None,
    search: str,
    seeds: int,
    minutes: float,
    baseline: bool | None,
    overrides: tuple[str, ...],
    noise_key: str | None,
    allow_model: str | None,
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Choose the noise and clipping of CONFIG: train, attack and price many settings, and attack the best one again. A
    killed study goes on where it was. Exit code 1: no setting keeps what is asked.

    \b
    Example:  audit choose config.toml -o study --vary scheme.sigma=1e-2..10 --vary scheme.clip=0.1,1
              audit choose config.toml -o other --vary scheme.noise_multiplier=.01..10 --accuracy-at-least .7
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.choose.goals import Goals
    from dpfl_audit.audit.choose.outputs import document
    from dpfl_audit.audit.choose.study import StudyOptions, carry_out_study
    from dpfl_audit.audit.setup.key import given_key

    goals = Goals(accuracy_at_least, reidentified_at_most, leakage_at_most, epsilon_at_most, cast(Any, best))
    options = StudyOptions(
        vary=vary,
        goals=goals,
        trials=trials,
        rows=cast(Any, rows),
        search=cast(Any, search),
        seeds=seeds,
        minutes=minutes,
        baseline=baseline,
        overrides=overrides,
        key=given_key(noise_key),
        allow_model=allow_model,
    )
    remark = None if quiet else progress.note
    study = carry_out_study(
        config, output, options, force=force, progress=progress, workers=_workers(ray), remark=remark
    )
    progress.close()
    if as_json:
        click.echo(_json({"study": str(output), **document(study)}))
    elif not quiet:
        click.echo("\n".join((study.sentence, *study.price.sentences, str(output / "study.html"))))
    return 0 if study.chosen is not None else 1


@audit.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a config value, e.g. theory.smoothness=2.",
)
@json_too
@common
def advise(config: Path, overrides: tuple[str, ...], as_json: bool, quiet: bool, debug: bool) -> None:
    """What the paper's own analysis would choose for CONFIG's scheme, and which of its assumptions do not hold.

    \b
    Example:  audit advise config.toml --set theory.smoothness=2
    """
    from dpfl_audit.audit.theory.recommend import advice_document, advice_text, recommendations

    advised = recommendations(config, overrides)
    click.echo(_json(advice_document(advised)) if as_json else advice_text(advised))


@audit.command()
@click.argument("name")
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    help="Folder of downloaded data sets (and weights, where the table needs some).",
)
@click.option("--data", help="Which data set, where the table leaves a choice.")
@click.option("--trials", type=int, help="Independent repetitions. Default: as published.")
@click.option("--quick", is_flag=True, help="Fewer shadows, trials or images; every row says so.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A folder to keep the table and finished cells in; the same command goes on.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@on_ray
@json_too
@common
def reproduce(
    name: str,
    data_root: Path | None,
    data: str | None,
    trials: int | None,
    quick: bool,
    output: Path | None,
    seed: int,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """A published table, NAME, beside the published numbers. `audit reproduce list` names them.

    \b
    Example:  audit reproduce geometric-table3 --data-root data --quick -o table3
    """
    from dpfl_audit.audit.reproduce.tables import TABLES
    from dpfl_audit.audit.reproduce.tables import reproduce as fill

    if name == "list" and as_json:
        click.echo(_json([{"name": known, "about": table.about} for known, table in TABLES.items()]))
        return
    if name == "list":
        for known, table in TABLES.items():
            click.echo(f"{known}  {table.about}")
        return
    progress = _progress(quiet)
    made = fill(
        name,
        data_root=data_root,
        data=data,
        quick=quick,
        trials=trials,
        seed=seed,
        output=output,
        progress=progress,
        workers=_workers(ray),
    )
    progress.close()
    click.echo(_json(made.document()) if as_json else made.text)


@audit.command("list")
@click.argument(
    "what",
    type=OneOf(["schemes", "attacks", "metrics", "datasets", "models", "observers"]),
    metavar="schemes|attacks|metrics|datasets|models|observers",
)
@json_too
@common
def list_(what: str, as_json: bool, quiet: bool, debug: bool) -> None:
    """List what there is to choose from.

    \b
    Example:  audit list schemes
    """
    from dpfl_audit.audit.catalogue import catalogue, text

    entries = catalogue(what)
    if as_json:
        click.echo(_json(entries))
        return
    click.echo(text(entries, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))


@audit.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("audit-demo"), show_default=True)
@click.option("--quick", is_flag=True, help="Fewer iterations; the report says so.")
@click.option(
    "--weights",
    type=OneOf(NETS),
    is_flag=False,
    flag_value=NETS[0],
    help=f"Fetch weights for LPIPS first, as `audit weights` does; {NETS[0]} where no name follows.",
)
@json_too
@common
def demo(output: Path, quick: bool, weights: str | None, as_json: bool, quiet: bool, debug: bool) -> None:
    """The whole way on real bundled images: train, attack and report one client under several noise and clip settings,
    then choose noise and clip for another federation. No GPU, and no network unless --weights asks for it.

    \b
    Example:  audit demo -o audit-demo
    """
    progress = _progress(quiet)
    from dpfl_audit.audit import demo as demonstration

    made = demonstration.demo(output, quick=quick, weights=cast(Any, weights), progress=progress)
    progress.close()
    results = [str(folder.resolve() / "results") for folder in demonstration.folders(output)]
    page, study = str(made.page.resolve()), str((made.study.folder / "study.html").resolve())
    if as_json:
        click.echo(_json({"report": page, "results": results, "study": study, "answer": made.study.sentence}))
    elif quiet:
        click.echo(page)
    else:
        click.echo("\n".join((f"Which noise and clip? {made.study.sentence}", study, "What attackers see:", page)))


@audit.command()
@click.argument("net", type=OneOf(NETS), default=NETS[0])
@json_too
@common
def weights(net: str, as_json: bool, quiet: bool, debug: bool) -> None:
    """Fetch torchvision's own weights for LPIPS into torch's cache: squeeze (SqueezeNet, 5 MB) or alex (AlexNet, 233
    MB, which most papers report). SHA-256 is checked; results of before get LPIPS by `audit run --force`.

    \b
    Example:  audit weights
    """
    progress = _progress(quiet)
    from dpfl_audit.audit.weights import fetch

    path = fetch(cast(Any, net), progress)
    progress.close()
    if as_json:
        click.echo(_json({"net": net, "weights": str(path)}))
    elif not quiet:
        click.echo(str(path))


def _own(
    made: Any, output: Path | None, gates: list[Any], logs: list[Any], junit: Path | None, quiet: bool, as_json: bool
) -> int:
    """Says what the audit of somebody's own code found, and gives the exit code by the gates."""
    results = made.results()
    if not (quiet or as_json):
        folder = [] if output is None else [str(output)]
        click.echo("\n".join((*made.sentences, *made.about.notes, *folder)))
    for log in logs:
        log(results)
    status, gated = _judged(gates, results, junit, quiet or as_json)
    if as_json:
        place = None if output is None else str(output)
        click.echo(_json({"folder": place, "gates": gated, "results": results.model_dump(by_alias=True)}))
    return status


def _judged(gates: list[Any], results: Any, junit: Path | None, quiet: bool) -> tuple[int, list[dict[str, Any]]]:
    """The exit code by the gates, and each with what became of it; what failed is said on stderr."""
    from dpfl_audit.audit.ci.junit import judge_gates

    outcomes = judge_gates(gates, results, junit)
    for outcome in outcomes:
        if outcome.failed or not quiet:
            click.echo(outcome.sentence, err=outcome.failed)
    failed = any(outcome.failed for outcome in outcomes)
    return int(failed), [{"gate": str(gate), **vars(outcome)} for gate, outcome in zip(gates, outcomes)]


def _config(path: Path, overrides: tuple[str, ...], seed: int | None) -> Any:
    from dpfl_audit.audit.setup.config import read_config

    return read_config(path, [*overrides, *([f"seed={seed}"] if seed is not None else [])])


def _json(content: Any) -> str:
    from dpfl_audit.audit.files import json_text

    return json_text(content, sort_keys=False).rstrip()


def _progress(quiet: bool) -> Reporter:
    """Shows from now on how far the command is; `close` it before anything is printed."""
    from dpfl_audit.audit.progress import Reporter

    return click.get_current_context().with_resource(Reporter(quiet))


def _workers(address: str | None) -> Workers:
    """Who does the command's work: until it ends a cluster's, or this process."""
    from dpfl_audit.audit.cluster import joined

    return click.get_current_context().with_resource(joined(address))


if __name__ == "__main__":
    main()
