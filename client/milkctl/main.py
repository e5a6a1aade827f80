"""The `milkctl` command: which commands there are, and the one place where errors arrive.

A command's module is loaded when it is called, so that the others cost it nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click
from milk_client.wire import VERSION

from milkctl import faults
from milkctl._cli import GLOBAL_OPTIONS, Group

INTERRUPTED = 130

SECTIONS: dict[str, dict[str, str]] = {
    "State and recall": {
        "learn": "stating:learn",
        "record": "stating:record",
        "recall": "reading:recall",
        "inject": "reading:inject",
    },
    "Look": {
        "list": "reading:list_",
        "show": "reading:show",
        "explain": "reading:explain",
        "conflicts": "reading:conflicts",
        "archive": "reading:archive",
        "status": "status:status",
        "watch": "watch:watch",
    },
    "Change": {
        "edit": "changing:edit",
        "pin": "changing:pin",
        "unpin": "changing:unpin",
        "link": "changing:link",
        "unlink": "changing:unlink",
        "forget": "changing:forget",
        "restore": "changing:restore",
    },
    "Runs of agents": {
        "run": "runs:run",
        "turn": "runs:turn",
        "consolidate": "runs:consolidate",
    },
    "The store and the daemon": {
        "sessions": "sessions:sessions",
        "export": "export:export",
        "start": "daemon:start",
        "stop": "daemon:stop",
        "restart": "daemon:restart",
        "config": "config:config",
        "completion": "completion:completion",
    },
}
"""Each command and where it is defined, in the order of the help."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


class Root(Group):
    """All commands, loaded when asked for; and what becomes of an error."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, its module loaded now; None if there is none."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, attribute = place.split(":")
        command: click.Command = getattr(import_module(f"milkctl.{module}"), attribute)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for, then all options."""
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        for section, names in SECTIONS.items():
            found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(section):
                formatter.write_dl([(name, command.get_short_help_str(limit)) for name, command in found])
        own = [parameter for parameter in super().get_params(ctx) if parameter not in GLOBAL_OPTIONS]
        records = [p.get_help_record(ctx) for p in (*GLOBAL_OPTIONS, *own)]
        with formatter.section("Options, before the command or after it"):
            formatter.write_dl([record for record in records if record is not None])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Carry out a command line and leave with its exit status; an error is told here and nowhere else."""
        given = list(sys.argv[1:] if args is None else args)
        faults.fill_missing_streams()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            status = super().main(given, prog_name="milkctl", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:
            faults.mute(sys.stdout)
            status = 1
        except (click.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        except Exception as error:
            options = given[: given.index("--")] if "--" in given else given
            status = faults.tell(error, as_json="--json" in options)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(
    cls=Root,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=(
        'milkctl learn "Never commit secrets"',
        'milkctl recall "package manager"',
        "milkctl status",
    ),
)
@click.version_option(VERSION, prog_name="milkctl", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """The command line of milkd, the memory that AI agents on a machine share.

    Without --role or MILK_ROLE it sees all and writes as the user, unless it is called below an agent's
    process. A percept's ID may be cut to 4 digits or more. TEXT - is read from standard input.

    Exit status: 0 done, 1 failed, 2 usage, 4 no daemon, 5 not found, 6 ambiguous.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)
