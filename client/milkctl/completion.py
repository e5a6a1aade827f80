"""`completion`: the script that makes a shell complete `milkctl`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from milkctl import main as root
from milkctl._cli import Cli, Command, pass_cli


@click.command(
    cls=Command,
    examples=(
        'eval "$(milkctl completion bash)"     # in ~/.bashrc; zsh alike',
        "milkctl completion fish > ~/.config/fish/completions/milkctl.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_cli
def completion(cli: Cli, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    script = kind(root.main, {}, "milkctl", "_MILKCTL_COMPLETE").source().rstrip("\n")
    cli.emit({"shell": shell, "script": script + "\n"}, lambda _: script)
