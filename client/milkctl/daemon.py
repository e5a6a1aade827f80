"""`start`, `stop`, `restart`: the daemon of this home."""

from __future__ import annotations

import os
from typing import Any

import click
from milk_client import paths
from milk_client.errors import NoDaemon, Timeout
from milk_client.wire import Welcome

from milkctl._cli import LIFE_S, Cli, Command, pass_cli
from milkctl.processes import Departure
from milkctl.show import visible


def _running(cli: Cli) -> Welcome | None:
    """The daemon that runs now; None if there is none. Raises NoDaemon where it is another machine's."""
    try:
        with cli.client(run="", start=False) as tool:
            return tool.welcome
    except NoDaemon:
        told = paths.read_endpoint(_home(cli))
        if told is not None and told.host != paths.this_host():
            raise
        return None


def _home(cli: Cli) -> paths.Home:
    return paths.find_home(cli.home, os.environ)


def _start(cli: Cli) -> Welcome:
    with cli.client(run="", timeout=LIFE_S) as tool:
        return tool.welcome


def _stop(cli: Cli) -> Welcome | None:
    """Stop the daemon and wait until its process is gone; None if none ran. Raises Timeout."""
    welcome = _running(cli)
    if welcome is None:
        return None
    seconds = cli.timeout or LIFE_S
    departure = Departure(welcome.pid)
    with cli.client(run="", start=False, timeout=seconds) as tool:
        tool.shutdown()
    if not departure.wait(seconds):
        raise Timeout(
            f"milkd (pid {welcome.pid}) was asked to stop and is still there after {seconds:g} s.",
            hint="It may be writing a large memory; look again with `milkctl status --no-start`.",
        )
    return welcome


def _told(welcome: Welcome, **more: Any) -> dict[str, Any]:
    return {"running": True, "pid": welcome.pid, "version": welcome.version, "home": welcome.home, **more}


@click.command(cls=Command)
@pass_cli
def start(cli: Cli) -> None:
    """Start the daemon, if it does not run."""
    welcome = _running(cli)
    started = welcome is None
    welcome = welcome or _start(cli)
    what = "started" if started else "runs already"
    cli.emit(
        _told(welcome, started=started),
        lambda _: f"milkd {welcome.version} {what} on {visible(welcome.home)} (pid {welcome.pid}).",
    )


@click.command(cls=Command)
@pass_cli
def stop(cli: Cli) -> None:
    """Stop the daemon and wait until it is gone."""
    welcome = _stop(cli)
    home = str(_home(cli).root)
    told = {"running": False, "stopped": welcome is not None, "pid": welcome.pid if welcome else None, "home": home}
    text = f"No milkd runs on {visible(home)}: nothing to stop."
    if welcome is not None:
        text = f"milkd on {visible(home)} (pid {welcome.pid}) has stopped."
    cli.emit(told, lambda _: text)


@click.command(cls=Command)
@pass_cli
def restart(cli: Cli) -> None:
    """Stop the daemon if it runs, and start it. Runs of agents go on."""
    if cli.no_start:
        raise click.UsageError("--no-start does not go with restart.", click.get_current_context())
    before = _stop(cli)
    welcome = _start(cli)
    was = before.pid if before else None
    text = f"milkd {welcome.version} runs on {visible(welcome.home)} (pid {welcome.pid}"
    cli.emit(_told(welcome, was=was), lambda _: f"{text}, before {was})." if was else f"{text}; none ran before).")
