"""Evidence and promotion as an agent gets them with nothing set: no ids, no config, `Milk()` in a folder (M5, M12)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import Agent
from running import Daemon, environment, is_dead, pass_time, until

FACT = "The integration tests need the docker daemon running"


@pytest.fixture
def default(base: Path) -> Iterator[tuple[Daemon, Callable[[], Agent]]]:
    """A machine where nobody has set anything: a user's home, a project folder, agents that start in it."""
    user, project = base / "user", base / "shop"
    user.mkdir()
    project.mkdir()
    env = environment(HOME=str(user))
    made: list[Agent] = []

    def make() -> Agent:
        made.append(Agent(env, project))
        return made[-1]

    daemon = Daemon(user / ".milk", base / "log", env)
    yield daemon, make
    pid = started_pid(daemon)
    for one in made:
        one.finish()
    if pid:
        os.kill(pid, signal.SIGTERM)
        until(lambda: is_dead(pid), what="the daemon that the agents started is gone")


def started_pid(daemon: Daemon) -> int:
    """The daemon that an agent started."""
    lock = daemon.root / "run" / "lock"
    return int(lock.read_text() or 0) if lock.exists() else 0


def evidence(told: dict[str, dict[str, int]]) -> int:
    return int(told["percept"].get("evidence", 0))


def test_nothing_said_in_one_sitting_is_evidence_twice_however_it_is_said_m5_m12(
    default: tuple[Daemon, Callable[[], Agent]],
) -> None:
    daemon, make = default
    one = make()
    one.open(None)
    stated = one.record(FACT)
    assert stated["outcome"] == "new" and evidence(stated) == 0
    seen = []
    for n in range(3):
        seen.append(evidence(one.record(FACT)))
        one.turn()
        who = f"again {n}"
        one.open(None, who=who)  # a new Milk() beside the first
        seen.append(evidence(one.record(FACT, who=who)))
        one.ask("close", who=who)
        assert one.fork(FACT) == "reinforced"
        assert one.shell(FACT) == "reinforced"
    one.ask("close")
    one.open(None)  # and after the first has left
    last = one.record(FACT)
    assert {*seen, evidence(last)} == {1}, "one sitting, one piece of evidence"
    assert last["id"] == stated["id"]
    assert last["percept"]["scope"] == "session", "so it stays where it was said"
    assert one.turn()["promotion_deferred"] == 1
    assert len(list(daemon.memory.glob("*.json"))) >= 2, "the home is where it is by default"


def test_overlapping_agents_cannot_pile_evidence_up_m12(default: tuple[Daemon, Callable[[], Agent]]) -> None:
    _, make = default
    agents = [make() for _ in range(3)]
    for one in agents:
        one.open(None)
    agents[0].record(FACT)
    for _ in range(2):
        found = [evidence(one.record(FACT)) for one in agents]
        assert found == [1, 1, 1], "all three had begun before the one corroboration"
        for one in agents:
            assert one.turn()["promoted"] == 0


def test_a_fact_stated_in_a_later_run_is_global_at_that_runs_turn_at_070_075_080_m11_m17(
    default: tuple[Daemon, Callable[[], Agent]],
) -> None:
    _, make = default
    first = make()
    first.open(None)
    stated = first.record(FACT)
    assert stated["percept"]["w_confirmed"] == pytest.approx(0.70, abs=1e-12)
    pass_time(0.5)  # real seconds: decay moves w, and must not matter
    again = first.record(FACT)
    assert again["percept"]["w_confirmed"] == pytest.approx(0.75, abs=1e-12)
    assert again["percept"]["w"] == pytest.approx(0.75, abs=1e-6), "as strong as when confirmed"
    pass_time(0.5)
    assert first.turn()["promoted"] == 0
    first.leave()
    later = make()
    later.open(None)
    pass_time(1.2)
    third = later.record(FACT)
    assert third["id"] == stated["id"] and evidence(third) == 2
    assert third["percept"]["w_confirmed"] == pytest.approx(0.80, abs=1e-12)
    assert third["percept"]["scope"] == "session", "a statement alone promotes nothing"
    pass_time(0.5)
    assert later.turn()["promoted"] == 1
    found = later.ask("list", scope="global")
    assert [percept["id"] for percept in found] == [stated["id"]]
    assert found[0]["w"] == pytest.approx(0.80, abs=1e-6)


def test_what_the_user_said_is_global_at_the_first_turn_m17(default: tuple[Daemon, Callable[[], Agent]]) -> None:
    _, make = default
    one = make()
    one.open(None)
    one.record(FACT, producer="user")
    pass_time(0.3)
    assert one.turn()["promoted"] == 1


def test_a_daemon_killed_and_started_anew_is_no_new_sitting_m12(default: tuple[Daemon, Callable[[], Agent]]) -> None:
    daemon, make = default
    one = make()
    run = one.open(None)
    one.record(FACT)
    assert evidence(one.record(FACT)) == 1
    pid = started_pid(daemon)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_dead(pid))
    again = one.record(FACT)  # starts a daemon by itself, and goes on
    assert started_pid(daemon) != pid
    assert evidence(again) == 1
    assert [line.run for line in daemon.status().runs] == [run]


def test_a_call_in_a_shell_outside_of_any_agent_is_no_run_and_no_evidence_m5_m12(
    daemon: Daemon,
) -> None:
    daemon.start()
    for _ in range(3):
        with daemon.tool() as tool:
            told = tool.record(FACT, producer="primary")
    assert told.outcome == "reinforced" and told.percept.evidence == 0
    assert not daemon.status().runs and daemon.clock() == 0.0
