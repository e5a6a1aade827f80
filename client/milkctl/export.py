"""`export`: all that is remembered, as JSON or for reading."""

from __future__ import annotations

from typing import Any, get_args

import click
import msgspec
from milk_client import Tool
from milk_client.wire import Part

from milkctl import show_export
from milkctl._cli import Cli, Command, pass_cli, write

_PARTS: tuple[Part, ...] = tuple(part for part in get_args(Part) if part != "archive")


def collect(tool: Tool) -> dict[str, Any]:
    """The whole store: each scope as its file would be, item by item as written; asked for in pages."""

    def scope(name: str) -> dict[str, list[msgspec.Raw]]:
        return {part: [msgspec.Raw(item) for item in tool.export(name, part)] for part in _PARTS}

    return {
        "global": scope("global"),
        "sessions": {line.session: scope(line.session) for line in tool.sessions()},
        "archive": [msgspec.Raw(item) for item in tool.export("archive", "archive")],
    }


@click.command(cls=Command, examples=("milkctl export > memory.json", "milkctl export --format markdown > memory.md"))
@click.option("--format", "form", type=click.Choice(["json", "markdown"]), default="json", help="json (default).")
@pass_cli
def export(cli: Cli, form: str) -> None:
    """Print all that is remembered, the archive included."""
    if cli.json and form == "markdown":
        raise click.UsageError("--json does not go with --format markdown.", click.get_current_context())
    store = msgspec.json.encode(collect(cli.onlooker()))
    if form == "json":
        write(msgspec.json.format(store, indent=2) + b"\n")
    else:
        write((show_export.markdown(msgspec.json.decode(store)) + "\n").encode())
