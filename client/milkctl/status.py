"""`status`: how the daemon and the memory are."""

from __future__ import annotations

import click

from milkctl import show_status
from milkctl._cli import Cli, Command, pass_cli


@click.command(cls=Command, examples=("milkctl status", "milkctl status --json"))
@pass_cli
def status(cli: Cli) -> None:
    """Show health, clocks, live runs, counts and files."""
    found = cli.onlooker().status()
    cli.emit(found, lambda style: show_status.status(found, style))
