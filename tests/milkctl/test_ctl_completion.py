"""What a shell is told to complete with, and a command whose standard streams are closed."""

from __future__ import annotations

import os
import subprocess

import pytest
from ctl import Ctl


def completed(ctl: Ctl, line: str) -> set[str]:
    """The words that bash offers at the end of a line."""
    words = line.split(" ")
    asked = {"_MILKCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return {told.partition(",")[2] for told in ctl("-", stdin=b"", **asked).out.splitlines() if told}


def test_ids_sessions_and_runs_complete(ctl: Ctl) -> None:
    identity = ctl.record("Herons wait", session="marsh")
    with ctl.tool() as tool:
        tool.begin_run(run := "5a" * 16, session="marsh", role="primary", pid=os.getpid())
    assert completed(ctl, f"milkctl show {identity[:2]}") == {identity[:8]}
    assert completed(ctl, f"milkctl record - --same-as {identity[:8]}") == {identity[:8]}
    assert completed(ctl, "milkctl list --session mar") == {"marsh"}
    assert completed(ctl, f"milkctl run end {run[:4]}") == {run}
    assert completed(ctl, f"milkctl restore {identity[:8]}") == set()


def test_no_daemon_is_started_to_complete(idle: Ctl) -> None:
    assert completed(idle, "milkctl show 1f3a") == set()
    assert not idle.home.exists()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(ctl: Ctl, closed: str) -> None:
    command = f'"$@" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *ctl.command("list")],
        env=ctl.environment,
        cwd=ctl.project,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
