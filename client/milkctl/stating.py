"""`learn` and `record`: state something."""

from __future__ import annotations

from typing import Any

import click

from milkctl import _complete, show_facts
from milkctl._cli import Cli, Command, pass_cli, producer_option, text_or_stdin, who

_text = click.argument("text", callback=text_or_stdin)
_subject = click.option("--subject", default="", metavar="LABEL", help="Group it belongs to.")


def _state(cli: Cli, text: str, session: str | None, role: str | None, run: str | None, **how: Any) -> None:
    done = cli.tool(session, role, run).record(text, **how)
    options = ["--session", session] if session else []
    cli.emit(done, lambda style: show_facts.recording(done, text.strip(), options, style))


@click.command(cls=Command, examples=('milkctl learn "Never commit secrets"', "echo a fact | milkctl learn -"))
@_text
@producer_option
@_subject
@who()
@pass_cli
def learn(
    cli: Cli,
    text: str,
    producer: str | None,
    subject: str,
    session: str | None,
    role: str | None,
    run: str | None,
) -> None:
    """State a fact for good: global, does not fade.

    It is seen in every session and never pruned, until it is unpinned or forgotten.
    """
    _state(cli, text, session, role, run, producer=producer, subject=subject, core=True)


@click.command(
    cls=Command,
    examples=(
        'milkctl record "The user prefers uv over pip"',
        'milkctl record "It is uv, always" --same-as 1f3a9c21',
        'milkctl record "The user prefers pixi over pip" --replaces 1f3a9c21',
    ),
)
@_text
@producer_option
@click.option("--consumer", type=click.Choice(["primary", "escalation"]), default=None, help="The one role to see it.")
@_subject
@click.option("--core", is_flag=True, help="For good, as `learn`.")
@click.option(
    "--same-as",
    metavar="ID",
    shell_complete=_complete.living,
    help="It says the same as that one: reinforce it, keep its text.",
)
@click.option(
    "--replaces",
    metavar="ID",
    shell_complete=_complete.living,
    help="It takes that one's place, which goes to the archive.",
)
@who()
@pass_cli
def record(
    cli: Cli,
    text: str,
    producer: str | None,
    consumer: str | None,
    subject: str,
    core: bool,
    same_as: str | None,
    replaces: str | None,
    session: str | None,
    role: str | None,
    run: str | None,
) -> None:
    """State a fact in a session.

    What is there already is reinforced, what was archived is restored; anything else is new. A near miss,
    almost the same but not quite, is stored on its own and shown with the commands that settle it.
    """
    _state(
        cli,
        text,
        session,
        role,
        run,
        producer=producer,
        consumer=consumer or "",
        subject=subject,
        core=core,
        same_as=same_as,
        replaces=replaces,
    )
