"""What all commands share: the global options, the way to the daemon, and the one way to print a result."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from milk_client import Tool
from milk_client.errors import Invalid, NotFound, TooLarge
from milk_client.wire import MAX_MESSAGE_BYTES, Archived, Edge, Engram, Percept, PerceptRecord, Reply

from milkctl import _complete
from milkctl.show import Style

CALL_S = 5.0
"""Seconds a call may take where ``--timeout`` does not say."""
LIFE_S = 30.0
"""Seconds that starting or stopping a daemon may take where ``--timeout`` does not say."""

F = TypeVar("F", bound=Callable[..., Any])


class Cli:
    """The global options of this call, wherever they stood, and what follows from them."""

    def __init__(self) -> None:
        self.home: str | None = None
        self.json = False
        self.no_color = False
        self.timeout: float | None = None
        self.no_start = False

    def client(
        self,
        session: str | None = None,
        role: str | None = None,
        run: str | None = None,
        *,
        start: bool = True,
        timeout: float = CALL_S,
    ) -> Tool:
        """A client of the daemon, not yet connected; it starts the daemon where none runs and it may."""
        return Tool(
            session,
            role,
            run=run,
            home=self.home,
            autostart=start and not self.no_start,
            timeout=self.timeout if self.timeout is not None else timeout,
        )

    def tool(self, session: str | None = None, role: str | None = None, run: str | None = None) -> Tool:
        """A client of the daemon, connected: it knows its session and role."""
        return self.client(session, role, run).connect()

    def looker(self, session: str | None = None, role: str | None = None) -> Tool:
        """A client that only looks: where its ``MILK_RUN_ID`` ended long ago it goes on without, and says so."""
        try:
            return self.tool(session, role)
        except NotFound as error:
            if error.field != "run":
                raise
            click.echo("milkctl: MILK_RUN_ID names a run that is not known any more; looking without it", err=True)
            return self.tool(session, role, run="")

    def onlooker(self) -> Tool:
        """A client for what concerns no session or run: a ``MILK_RUN_ID`` of long ago is no obstacle."""
        return self.tool(run="")

    def style(self) -> Style:
        """How text is to look on this standard output."""
        terminal = sys.stdout.isatty()
        plain = self.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return Style(
            color=terminal and not plain,
            width=_columns() if terminal else 0,
            # For saying "an hour ago": nothing is decided by it.
            now=time.time(),  # noqa: TID251
            program=f"milkctl --home {shlex.quote(self.home)}" if self.home else "milkctl",
        )

    def emit(self, data: Any, text: Callable[[Style], str]) -> None:
        """Print a result: ``data`` as one JSON document, or what ``text`` makes of it for people."""
        if self.json:
            write(msgspec.json.encode(document(data)) + b"\n")
        else:
            say(text(self.style()))


def _columns() -> int:
    """The width of the terminal; COLUMNS where it is set, as everywhere."""
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdigit() else os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 80


_AS_IN_FILES = (PerceptRecord, Edge, Engram, Archived)


def document(data: Any) -> Any:
    """What JSON shows: nouns of the files as they stand there, all else with every field, nothing of the wire."""
    if isinstance(data, list):
        return [document(item) for item in data]
    if isinstance(data, dict):
        return {key: document(value) for key, value in data.items()}
    if isinstance(data, Percept | Archived) and data.extra:
        return _with_unknown(data)
    if not isinstance(data, msgspec.Struct) or isinstance(data, _AS_IN_FILES):
        return data
    wire_only = ("id",) if isinstance(data, Reply) else ()
    return {name: document(getattr(data, name)) for name in data.__struct_fields__ if name not in wire_only}


def _with_unknown(noun: Percept | Archived) -> dict[str, Any]:
    """A noun with the fields that milkd does not know where they stand in its file (M3)."""
    told: dict[str, Any] = msgspec.to_builtins(noun)
    del told["extra"]
    percept = told["percept"] if isinstance(noun, Archived) else told
    for key, text in noun.extra.items():
        percept.setdefault(key, msgspec.Raw(text.encode()))
    return told


def write(data: bytes) -> None:
    """Bytes to standard output, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Text to standard output, at once; nothing where there is none."""
    write((text + "\n").encode(sys.stdout.encoding, "backslashreplace") if text else b"")


def text_or_stdin(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The argument itself; for ``-`` all of standard input."""
    if value != "-" or context.resilient_parsing:  # the latter: a shell asks what completes the line
        return value
    data = sys.stdin.buffer.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"Standard input has more than {MAX_MESSAGE_BYTES} bytes.", field=parameter.name or "")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"Standard input is not UTF-8 (byte {error.start}).", field=parameter.name or "") from None


# ---------------------------------------------------------------- options


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Note a global option; the one nearer to the end of the line wins."""
    cli = context.ensure_object(Cli)
    if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        setattr(cli, parameter.name, value)


def _global(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_keep, **attributes)


GLOBAL_OPTIONS: tuple[click.Option, ...] = (
    _global("--home", metavar="DIR", help="Home of the memory (else MILK_HOME, else ~/.milk)."),
    _global("--json", is_flag=True, help="One JSON document on standard output, nothing else."),
    _global("--no-color", is_flag=True, help="No colours (as NO_COLOR; there are none outside a terminal)."),
    _global(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="S",
        help="Seconds a call may take (5; start and stop 30).",
    ),
    _global("--no-start", is_flag=True, help="Do not start the daemon if none runs: exit with status 4."),
)
"""Accepted before the command and after it."""


class Command(click.Command):
    """A command with the global options and, in its help, examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options and the global ones."""
        return [*super().get_params(ctx), *GLOBAL_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options; the global ones by name."""
        _own_options(super().get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The examples."""
        _examples(self.examples, formatter)


class Group(click.Group):
    """A group of commands with the global options."""

    command_class = Command

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        attributes.setdefault("no_args_is_help", False)
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options and the global ones."""
        return [*super().get_params(ctx), *GLOBAL_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, its commands; the global options by name."""
        self.format_commands(ctx, formatter)
        _own_options(super().get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The examples."""
        _examples(self.examples, formatter)


def _own_options(parameters: list[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    options = [p for p in parameters if isinstance(p, click.Option)]
    records = [record for p in options if (record := p.get_help_record(ctx)) is not None]
    with formatter.section("Options"):
        formatter.write_dl(records)
    names = " ".join(option.opts[0] for option in GLOBAL_OPTIONS)
    formatter.write_paragraph()
    formatter.write_text(f"Also {names}: see `milkctl --help`.")


def _examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{' ' * formatter.current_indent}{example}\n")


pass_cli = click.make_pass_decorator(Cli, ensure=True)


session_option = click.option(
    "--session",
    metavar="S",
    shell_complete=_complete.sessions,
    help="Session (else MILK_SESSION, else of this project).",
)
run_option = click.option(
    "--run",
    metavar="ID",
    shell_complete=_complete.runs,
    help="Run (else MILK_RUN_ID, else the live run we were called below).",
)


def who(*, run: bool = True) -> Callable[[F], F]:
    """The options that say in whose name: ``--session``, ``--role`` and, where it counts, ``--run``."""
    options = [
        session_option,
        click.option(
            "--role",
            type=click.Choice(["primary", "escalation", "user"]),
            help="Role (else MILK_ROLE, else that of the run, else a person who sees all).",
        ),
    ]
    if run:
        options.append(run_option)

    def wrap(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return wrap


producer_option = click.option(
    "--producer", type=click.Choice(["user", "primary", "escalation", "system"]), help="Who asserted it."
)
