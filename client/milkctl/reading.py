"""`recall`, `inject`, and what only looks: `list`, `show`, `explain`, `conflicts`, `archive`."""

from __future__ import annotations

from typing import Any

import click

from milkctl import _complete, show_explain, show_facts
from milkctl._cli import Cli, Command, Group, pass_cli, producer_option, text_or_stdin, who
from milkctl.show import visible_lines

_strength = click.FloatRange(0, 1)


@click.command(cls=Command, examples=('milkctl recall "package manager"',))
@click.argument("query", callback=text_or_stdin)
@click.option("--min-confidence", type=_strength, metavar="W", help="Least strength, 0 to 1.")
@click.option("--max-results", type=click.IntRange(min=1), metavar="N", help="At most so many (5).")
@who()
@pass_cli
def recall(
    cli: Cli,
    query: str,
    min_confidence: float | None,
    max_results: int | None,
    session: str | None,
    role: str | None,
    run: str | None,
) -> None:
    """Find what matches QUERY, best first; counts as use."""
    tool = cli.tool(session, role, run)
    found = tool.get(query, min_confidence=min_confidence, max_results=max_results)
    cli.emit(found, lambda style: show_facts.recalled(found, style))


@click.command(cls=Command, examples=('milkctl inject "set up the project"', "milkctl inject - < prompt.txt"))
@click.argument("prompt", callback=text_or_stdin)
@click.option("--relevant", is_flag=True, help="Only what shares a word with the prompt, and core.")
@who()
@pass_cli
def inject(cli: Cli, prompt: str, relevant: bool, session: str | None, role: str | None, run: str | None) -> None:
    """Print the block to put before PROMPT; counts as use. Nothing is printed where nothing is remembered."""
    block = cli.tool(session, role, run).inject(prompt, relevant=relevant)
    cli.emit(block, lambda _: visible_lines(block.text))


@click.command("list", cls=Command, examples=("milkctl list --scope global", "milkctl list --pattern 'uv*'"))
@click.option("--scope", type=click.Choice(["global", "session"]), help="One scope alone (else both).")
@click.option("--all-sessions", is_flag=True, help="Every session's percepts.")
@producer_option
@click.option("--min-w", type=_strength, metavar="W", help="Least strength, 0 to 1.")
@click.option("--pattern", default="", metavar="P", help="Part of the content, or a glob with * ? [.")
@who(run=False)
@pass_cli
def list_(
    cli: Cli,
    scope: str | None,
    all_sessions: bool,
    producer: Any,
    min_w: float | None,
    pattern: str,
    session: str | None,
    role: str | None,
) -> None:
    """List what is remembered; not use."""
    tool = cli.looker(session, role)
    asked: Any = scope or ""
    found = tool.list(scope=asked, producer=producer, min_w=min_w, pattern=pattern, all_sessions=all_sessions)
    cli.emit(found, lambda style: show_facts.listing(found, tool.session, style))


@click.command(cls=Command, examples=("milkctl show 1f3a",))
@click.argument("percept", metavar="ID", shell_complete=_complete.percepts)
@pass_cli
def show(cli: Cli, percept: str) -> None:
    """Show one percept, living or archived; not use."""
    found = cli.looker().show(percept)
    cli.emit(found, lambda style: show_facts.shown(found, style))


@click.command(cls=Command, examples=("milkctl explain 1f3a",))
@click.argument("percept", metavar="ID", shell_complete=_complete.percepts)
@pass_cli
def explain(cli: Cli, percept: str) -> None:
    """Tell why a percept is as it is, and what will become of it.

    Its strength and what decay took, its evidence and who may add to it, its rank, what keeps it from
    promotion, and when it will leave if nothing happens.
    """
    found = cli.looker().explain(percept)
    cli.emit(found, lambda style: show_explain.explained(found, style))


@click.command(cls=Command)
@pass_cli
def conflicts(cli: Cli) -> None:
    """Show what contradicts what, and how to settle it."""
    found = cli.looker().conflicts()
    cli.emit(found, lambda style: show_facts.conflicts(found, style))


@click.group(cls=Group)
def archive() -> None:
    """What the model let go."""


@archive.command("list", examples=("milkctl archive list --pattern login",))
@click.option("--pattern", default="", metavar="P", help="Part of the content, or a glob with * ? [.")
@who(run=False)
@pass_cli
def archive_list(cli: Cli, pattern: str, session: str | None, role: str | None) -> None:
    """List archived percepts, newest first: why they went, and from where.

    Those of every session, unless --session names one.
    """
    entries = cli.looker(session, role).archive(pattern=pattern, all_sessions=session is None)
    cli.emit(entries, lambda style: show_facts.archive(entries, style))
