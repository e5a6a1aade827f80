"""Homes, daemons and agents for tests of real processes; all of them are ended, whatever happens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import Agent
from running import Daemon, environment


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MILK_HOME", "MILK_SESSION", "MILK_ROLE", "MILK_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder of the test's own whose path leaves room for a socket."""
    with tempfile.TemporaryDirectory(prefix="milk-", dir="/tmp") as name:
        yield Path(name).resolve()


@pytest.fixture
def daemon(base: Path) -> Iterator[Daemon]:
    """A home with nothing on it yet: `start` it."""
    made = Daemon(base / "home", base / "log")
    yield made
    made.finish()


@pytest.fixture
def agent(daemon: Daemon, base: Path) -> Iterator[Callable[..., Agent]]:
    """Makes agent processes on the daemon's home; they start no daemon unless told."""
    made: list[Agent] = []

    def make(**env: str) -> Agent:
        made.append(Agent(environment(MILK_HOME=str(daemon.root), **env), base))
        return made[-1]

    yield make
    for one in made:
        one.finish()
