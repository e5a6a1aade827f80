"""What the shell completes with, as the daemon has it: sessions, ids, runs. No daemon is started for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click
from milk_client import Tool
from milk_client.errors import MilkError

from milkctl.show import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from milkctl._cli import Cli

_PATIENCE_S = 1.0
_MOST = 200
"""A list that is longer helps nobody."""
_LONGEST = 60

Pairs = Iterable[tuple[str, str]]
"""Words to complete with, each with what tells a person which it is."""
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completer(look: Callable[[Tool], Pairs]) -> Completer:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        cli: Cli = context.obj
        cli.no_start, cli.timeout = True, _PATIENCE_S
        begun = incomplete.removeprefix("#").lower()
        try:
            with cli.client(run="") as tool:
                fitting = [pair for pair in look(tool) if pair[0].lower().startswith(begun)]
        except MilkError:
            return []  # a shell that waits for a word has no place for an error
        return [CompletionItem(word, help=visible(about)[:_LONGEST]) for word, about in islice(fitting, _MOST)]

    return complete


def _living(tool: Tool) -> Pairs:
    return [(percept.id[:8], percept.content) for percept in tool.list(all_sessions=True)]


def _archived(tool: Tool) -> Pairs:
    return [(entry.percept.id[:8], entry.percept.content) for entry in tool.archive(all_sessions=True)]


def _any(tool: Tool) -> Pairs:
    return [*_living(tool), *_archived(tool)]


def _sessions(tool: Tool) -> Pairs:
    return [(line.session, f"{line.percepts} percepts") for line in tool.sessions()]


def _runs(tool: Tool) -> Pairs:
    return [(line.run, f"{line.session}, {line.role}, pid {line.pid}") for line in tool.status().runs]


living, archived, percepts = _completer(_living), _completer(_archived), _completer(_any)
sessions, runs = _completer(_sessions), _completer(_runs)
