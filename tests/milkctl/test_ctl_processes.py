"""Which process a run is begun for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from milkctl.processes import Ancestor, Departure, agent_among, ancestors


def chain(*commands: str) -> list[Ancestor]:
    return [Ancestor(100 - n, 99 - n, tuple(words.split())) for n, words in enumerate(commands)]


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        (("sh -c hook", "claude"), 99),
        (("/bin/bash -lc hook", "sh -c outer", "node agent.js"), 98),
        (("bash --norc -ec hook", "node agent.js"), 99),
        (("-zsh", "login"), 100),
        (("bash hook.sh -c", "claude"), 100),
        (("bash hook.sh", "bash hook.sh", "claude"), 99),
        (("python agent.py -c", "bash"), 100),
        (("fish --command hook", "agent"), 99),
        (("sh -c hook",), 100),
        ((), 0),
    ],
)
def test_a_shell_that_ran_a_command_is_passed_over(commands: tuple[str, ...], found: int) -> None:
    assert agent_among(chain(*commands)) == found


def test_the_real_ancestors() -> None:
    found = ancestors(os.getpid())
    assert found[0].pid == os.getpid()
    assert found[1].pid == os.getppid()


def test_a_departure_is_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not Departure(process.pid).wait(0.01)
        departure = Departure(process.pid)
        process.communicate(b"\n")
        assert departure.wait(10.0)
    assert Departure(process.pid).wait(1.0)
