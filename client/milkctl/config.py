"""`config check` and `config show`: the daemon's config file."""

from __future__ import annotations

import os
import subprocess
import sys

import click
from milk_client import paths
from milk_client.errors import Timeout

from milkctl import show_status
from milkctl._cli import Cli, Group, pass_cli
from milkctl.show import visible

_BAD = 2
_CHECK_S = 30.0


@click.group(cls=Group, examples=("milkctl config check ~/.milk/milkd.toml", "milkctl config show"))
def config() -> None:
    """Check a config file, show the config in force."""


@config.command("check", examples=("milkctl config check", "milkctl config check new.toml"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, resolve_path=True), required=False)
@click.pass_context
def check(context: click.Context, file: str | None) -> None:
    """Check a config file (else the home's) as the daemon would; needs no daemon."""
    cli = context.ensure_object(Cli)
    home = paths.find_home(cli.home, os.environ)
    # -P: a folder here that is called milkd is not the daemon.
    command = [sys.executable, "-P", "-m", "milkd", "--home", str(home.root), "--check-config"]
    seconds = cli.timeout or _CHECK_S
    try:
        done = subprocess.run(
            [*command, *([file] if file else [])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Timeout(f"milkd did not check it within {seconds:g} s.", hint="Give it longer with --timeout.") from None
    if done.returncode not in (0, _BAD):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise click.ClickException(f"milkd could not check it (status {done.returncode}): {last}")
    good = done.returncode == 0
    told = done.stdout.splitlines()
    warnings = [line.removeprefix("warning: ") for line in told if line.startswith("warning: ")]
    problems = [line.removeprefix("milkd: ") for line in done.stderr.splitlines() if line]
    lines = [*(f"warning: {visible(line)}" for line in warnings), *map(visible, problems)]
    lines += [visible(line) for line in told if not line.startswith("warning: ")]
    document = {"good": good, "file": file, "home": str(home.root), "warnings": warnings, "problems": problems}
    cli.emit(document, lambda _: "\n".join(lines))
    context.exit(0 if good else 1)


@config.command("show")
@pass_cli
def show(cli: Cli) -> None:
    """Show the config in force, and where it came from."""
    found = cli.onlooker().config()
    cli.emit(found, lambda style: show_status.config(found, style))
