"""`sessions`: which there are, another name, two made one."""

from __future__ import annotations

import click

from milkctl import _complete, show_status
from milkctl._cli import Cli, Group, pass_cli
from milkctl.show import visible


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=("milkctl sessions", "milkctl sessions rename app-1f3a9c21 app", "milkctl sessions merge old app"),
)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List the sessions; rename or merge them."""
    if context.invoked_subcommand is None:
        cli = context.ensure_object(Cli)
        tool = cli.onlooker()
        lines = tool.sessions()
        cli.emit(lines, lambda style: show_status.sessions(lines, tool.session, style))


@sessions.command("rename", examples=("milkctl sessions rename app-1f3a9c21 app",))
@click.argument("old", shell_complete=_complete.sessions)
@click.argument("new")
@pass_cli
def rename(cli: Cli, old: str, new: str) -> None:
    """Give a session another name; it must have no live runs."""
    cli.onlooker().rename_session(old, new)
    cli.emit({"old": old, "new": new}, lambda _: f"Session {visible(old)} is now {visible(new)}.")


@sessions.command("merge", examples=("milkctl sessions merge old app",))
@click.argument("source", metavar="FROM", shell_complete=_complete.sessions)
@click.argument("into", metavar="INTO", shell_complete=_complete.sessions)
@pass_cli
def merge(cli: Cli, source: str, into: str) -> None:
    """Move all of one session into another; the first is no more."""
    cli.onlooker().merge_session(source, into)
    cli.emit({"source": source, "into": into}, lambda _: f"All of session {visible(source)} is in {visible(into)} now.")
