"""`run begin`, `run end`, `turn`, `consolidate`: runs of agents that speak through hooks, and passes."""

from __future__ import annotations

import os

import click
from milk_client import Tool
from milk_client.errors import Ambiguous, NotFound

from milkctl import _complete, show_status
from milkctl._cli import Cli, Command, Group, pass_cli, run_option, session_option, who
from milkctl.processes import agent_among, ancestors


@click.group(
    cls=Group,
    examples=(
        "export MILK_RUN_ID=$(milkctl run begin)",
        'milkctl record "The tests need postgres"',
        "milkctl turn",
        'milkctl run end "$MILK_RUN_ID"',
    ),
)
def run() -> None:
    """Begin and end the run of an agent that speaks through hooks."""


@run.command(
    "begin",
    examples=(
        "milkctl run begin",
        "milkctl run begin --pid $PPID             # in a hook that is a script: for its caller",
        "milkctl run begin --pid 4711 --role escalation",
    ),
)
@click.option("--pid", type=click.IntRange(min=1), metavar="PID", help="The agent's process (else found above us).")
@who(run=False)
@pass_cli
def begin(cli: Cli, pid: int | None, session: str | None, role: str | None) -> None:
    """Begin a run for an agent's process; prints its id.

    Without --pid it is for the nearest process above this one that is no `sh -c`. It ends with `run end`,
    with that process, or after an hour of silence. What is called below that process finds it by itself.
    """
    process = pid or agent_among(ancestors(os.getppid())) or os.getppid()
    tool = cli.client(session, role, "")
    # As this place and environment say: not the session of a run that this one is begun below.
    asked_session, asked_role = tool.session, tool.role
    welcome = tool.begin_run(os.urandom(16).hex(), session=asked_session, role=asked_role, pid=process)
    told = {"run": welcome.run, "session": welcome.session, "role": welcome.role, "pid": process}
    cli.emit(told, lambda _: welcome.run)


@run.command("end", examples=('milkctl run end "$MILK_RUN_ID"',))
@click.argument("run_id", metavar="RUN", shell_complete=_complete.runs)
@pass_cli
def end(cli: Cli, run_id: str) -> None:
    """End a run; prints the report of its last pass."""
    tool = cli.onlooker()
    whole = _live_run(tool, run_id)
    passed = tool.end_run(whole)
    told = {"run": whole, "report": passed.report}
    cli.emit(told, lambda style: f"Run {whole[:8]} has ended.\n{show_status.passed(passed.report, style)}")


def _live_run(tool: Tool, given: str) -> str:
    """The id of the live run that ``given`` is or begins. Raises NotFound or Ambiguous."""
    runs = [line.run for line in tool.status().runs]
    found = [run_id for run_id in runs if run_id == given] or [i for i in runs if given and i.startswith(given)]
    if not found:
        raise NotFound(f"There is no live run {given!r}.", field="run", hint="`milkctl status` shows the live runs.")
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} live runs begin with {given!r}.", field="run", candidates=tuple(found))
    return found[0]


@click.command(cls=Command, examples=("milkctl turn", 'milkctl turn --run "$MILK_RUN_ID"'))
@run_option
@pass_cli
def turn(cli: Cli, run: str | None) -> None:
    """Signal the end of an agent's turn; prints what the pass did."""
    report = cli.tool(run=run).turn()
    cli.emit(report, lambda style: show_status.passed(report, style))


@click.command(cls=Command, examples=("milkctl consolidate --session app-1f3a9c21",))
@session_option
@run_option
@pass_cli
def consolidate(cli: Cli, session: str | None, run: str | None) -> None:
    """Run a pass now; prints its report.

    It is the pass of that run's sitting, if the run is of the session; else of the newest live run there.
    """
    tool = cli.tool(session, run=run)
    report = tool.consolidate(session=session or tool.session, run=tool.run_id)
    cli.emit(report, lambda style: show_status.passed(report, style))
