"""The command line: which commands there are, and how one ends. Each is a file of its own in `audit/commands/`."""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback

import click
from dpfl_audit import __version__
from dpfl_audit.audit.commands import (
    advise,
    check,
    choose,
    demo,
    diff,
    epsilon,
    flower,
    import_,
    init,
    list_,
    mechanism,
    replay,
    report,
    reproduce,
    run,
    train,
    weights,
)
from dpfl_audit.defenses.process import keep_memory

# Threads that wait for each other by spinning make everything tens of times slower as soon as another program wants a
# core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

SECTIONS = {
    "See it once": {demo: "train, attack and report on bundled photographs; choose a noise"},
    "Choose noise and clip": {
        init: "print a commented config",
        epsilon: "claimed and proven ε of a config, a setup or bare numbers; nothing is trained",
        choose: "train, attack and price many settings; attack the best one again",
        advise: "what the scheme's paper would choose, and which of its assumptions fail",
    },
    "Audit a training": {
        train: "train a config and capture its messages into a setup folder",
        run: "attack what a setup captured, and score the evidence",
        report: "write the page, a claim card or a statement",
        check: "check every file of a setup, and what its owner declares",
        diff: "what leaked more in one results folder than in another",
    },
    "Audit code or a training of your own": {
        import_: "make a setup of a training that something else did",
        replay: "does one record move what noise is added to by its bound at most?",
        mechanism: "a lower bound on the ε of a function",
        flower: "a lower bound on the ε of a Flower app",
    },
    "Look up": {
        list_: "schemes, attacks, metrics, data sets, models, observers",
        reproduce: "published tables, beside the published numbers",
        weights: "fetch torchvision's weights for LPIPS",
    },
}

FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk, or what somebody may take of it


class Sections(click.Group):
    """Lists its commands by what they are for, each with one line that is never cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(module.command.name), line) for module, line in lines.items()])


@click.group(
    cls=Sections,
    help="What does a differentially private federated learning setup leak: claimed, proven, demonstrated.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="audit")
def audit() -> None:
    pass


for lines in SECTIONS.values():
    for module in lines:
        audit.add_command(module.command)


def main(argv: list[str] | None = None) -> None:
    """Entry point of `audit`: 0 done, 1 a --fail-if gate failed, 2 bad input, 130 interrupted (the same command
    resumes).
    """
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    # Ledgers are many small objects without cycles: Python's default of a collection every 700 new ones took 3 of the
    # 7 s that 5,000 clients × 10 rounds are priced in.
    gc.set_threshold(100_000, 20, 20)
    keep_memory()
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
        then = "; make room and give the same command again" if error.errno in FULL else ""
        click.echo(f"audit: {_sentence(f'{where}{error.strerror or error}{then}')}", err=True)
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


if __name__ == "__main__":
    main()
