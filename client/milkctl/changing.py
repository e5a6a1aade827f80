"""`edit`, `pin`, `unpin`, `link`, `unlink`, `restore`, `forget`: change what is remembered."""

from __future__ import annotations

from typing import Any

import click
from milk_client import Tool
from milk_client.errors import MilkError, NoDaemon
from milk_client.wire import Forgotten, Percept

from milkctl import _complete, faults, show_facts
from milkctl._cli import Cli, Command, pass_cli, text_or_stdin
from milkctl.show import count, visible, visible_lines

_id = click.argument("percept", metavar="ID", shell_complete=_complete.living)
_relations = click.Choice(["extends", "updates", "derives", "contradicts"])


def _changed(cli: Cli, percept: Percept, what: str) -> None:
    cli.emit(percept, lambda style: show_facts.changed(what)(percept, style))


@click.command(cls=Command, examples=('milkctl edit 1f3a "The user prefers uv over pip and conda"',))
@_id
@click.argument("text", callback=text_or_stdin)
@pass_cli
def edit(cli: Cli, percept: str, text: str) -> None:
    """Replace a percept's text; its id, place and edges stay."""
    _changed(cli, cli.tool().edit(percept, text), "Edited")


@click.command(cls=Command, examples=("milkctl pin 1f3a",))
@_id
@pass_cli
def pin(cli: Cli, percept: str) -> None:
    """Make a percept core: global, does not fade."""
    _changed(cli, cli.tool().pin(percept), "Pinned")


@click.command(cls=Command, examples=("milkctl unpin 1f3a",))
@_id
@pass_cli
def unpin(cli: Cli, percept: str) -> None:
    """Take core away: it stays global, and fades."""
    _changed(cli, cli.tool().unpin(percept), "Unpinned")


@click.command(cls=Command, examples=("milkctl restore 1f3a",))
@click.argument("percept", metavar="ID", shell_complete=_complete.archived)
@pass_cli
def restore(cli: Cli, percept: str) -> None:
    """Bring an archived percept back."""
    _changed(cli, cli.tool().restore(percept), "Restored")


@click.command(
    cls=Command, examples=("milkctl link 1f3a 77b0 contradicts", "milkctl link 1f3a 77b0 updates --supersede")
)
@click.argument("source", metavar="FROM", shell_complete=_complete.living)
@click.argument("target", metavar="TO", shell_complete=_complete.living)
@click.argument("relation", type=_relations)
@click.option("--supersede", is_flag=True, help="With updates: TO goes to the archive.")
@pass_cli
def link(cli: Cli, source: str, target: str, relation: Any, supersede: bool) -> None:
    """Make an edge between two percepts."""
    done = cli.tool().link(source, target, relation, supersede=supersede)
    superseded = done.edge.target if supersede and done.edge else ""
    told = {"edge": done.edge, "created": done.created}
    cli.emit(told, lambda style: show_facts.linked(done, superseded, style))


@click.command(cls=Command, examples=("milkctl unlink 1f3a 77b0 contradicts",))
@click.argument("source", metavar="FROM", shell_complete=_complete.living)
@click.argument("target", metavar="TO", shell_complete=_complete.living)
@click.argument("relation", type=_relations, required=False)
@pass_cli
def unlink(cli: Cli, source: str, target: str, relation: Any) -> None:
    """Remove edges between two percepts, of one relation or all."""
    removed = cli.tool().unlink(source, target, relation)
    cli.emit({"removed": removed}, lambda _: f"Removed {count(removed, 'edge')}.")


@click.command(cls=Command, examples=("milkctl forget 1f3a 77b0",))
@click.argument("percepts", metavar="ID...", nargs=-1, required=True, shell_complete=_complete.percepts)
@click.pass_context
def forget(context: click.Context, percepts: tuple[str, ...]) -> None:
    """Remove percepts and their content for good.

    Once it is done no file holds the content any more, the archive and copies included.
    Each is forgotten on its own: one that fails does not keep the others. The exit status is the worst.
    """
    cli = context.ensure_object(Cli)
    outcomes = _forget_each(cli.tool(), percepts)
    done = [outcome for _, outcome in outcomes if isinstance(outcome, Forgotten)]
    failed = [(given, outcome) for given, outcome in outcomes if isinstance(outcome, MilkError)]
    told = {
        "forgotten": [percept_id for one in done for percept_id in one.ids],
        "superseded": [percept_id for one in done for percept_id in one.superseded],
        "failed": [{"id": given, "error": faults.as_document(error)} for given, error in failed],
    }
    cli.emit(told, lambda style: show_facts.forgotten(done, style))
    for given, error in failed:
        text = faults.as_text(error, hint=not done).removeprefix("ids: ")  # "nothing was changed" is not so any more
        click.echo(f"milkctl: {visible(given)}: {visible_lines(text)}", err=True)
    context.exit(max((error.exit_status for _, error in failed), default=0))


def _forget_each(tool: Tool, percepts: tuple[str, ...]) -> list[tuple[str, Forgotten | MilkError]]:
    """What became of each; a daemon that is gone is not asked again."""
    outcomes: list[tuple[str, Forgotten | MilkError]] = []
    gone: NoDaemon | None = None
    for given in dict.fromkeys(percepts):
        try:
            outcomes.append((given, gone or tool.forget(given)))
        except MilkError as error:
            gone = error if isinstance(error, NoDaemon) else None
            outcomes.append((given, error))
    return outcomes
