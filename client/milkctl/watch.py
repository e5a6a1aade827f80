"""`watch`: what happens, as it happens."""

from __future__ import annotations

import click
import msgspec
from milk_client.wire import Event

from milkctl._cli import Cli, Command, document, pass_cli, say, write
from milkctl.show import Style, clock_time, short, visible


@click.command(cls=Command, examples=("milkctl watch", "milkctl watch --kind recorded --kind promoted --json"))
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these: recorded, promoted, pass, …")
@pass_cli
def watch(cli: Cli, kinds: tuple[str, ...]) -> None:
    """Print events as they happen, a line each; Ctrl-C ends it.

    With --json each line is a JSON document. What happened before is not told.
    """
    from milk_client.events import Events

    endpoint = cli.onlooker().welcome.events
    style = cli.style()
    try:
        with Events(endpoint, kinds) as events:
            click.echo("Watching; Ctrl-C ends it.", err=True)
            for event in events:
                if cli.json:
                    write(msgspec.json.encode(document(event)) + b"\n")
                else:
                    say(line(event, style))
    except KeyboardInterrupt:
        return


def line(event: Event, style: Style) -> str:
    """An event as a line."""
    parts = [
        style.paint(clock_time(event.at), "dim"),
        style.paint(f"{visible(event.kind):<10}", "bold"),
        visible(event.session or "global") if event.percept or event.session else "",
        style.paint(short(event.percept), "cyan") if event.percept else "",
        visible(event.content),
        f"({visible(event.detail)})" if event.detail else "",
    ]
    return "  ".join(part for part in parts if part)
