"""Running time and the life of runs, with real processes (M5, M6)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from agents import Agent, suspend
from running import QUICK, Daemon, is_dead, pass_time, until

Agents = Callable[..., Agent]


def live(daemon: Daemon) -> list[int]:
    """The pids of the live runs."""
    return [line.pid for line in daemon.status().runs]


def test_overlapping_agents_age_both_clocks_by_the_time_that_passed_and_not_by_twice_that_m6(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    first, second = agent(), agent()
    first.open()
    second.open()
    begin, before = time.monotonic(), daemon.status().clocks
    pass_time(1.5)
    after, passed = daemon.status().clocks, time.monotonic() - begin
    aged = after["global_s"] - before["global_s"]
    assert abs(aged - passed) < 0.4, "the union of the two stays, not their sum"
    assert abs(after["sessions"]["s"] - before["sessions"]["s"] - passed) < 0.4


def test_each_session_has_a_clock_of_its_own_and_the_global_one_is_their_union_m6(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    first, second = agent(), agent()
    first.open("one")
    second.open("two")
    pass_time(0.6)
    first.ask("close")
    stood = daemon.clock("one")
    pass_time(0.6)
    clocks = daemon.status().clocks
    assert clocks["sessions"]["one"] == stood
    assert clocks["sessions"]["two"] > stood + 0.4
    assert clocks["global_s"] < clocks["sessions"]["two"] + 0.5


def test_no_clock_moves_while_nobody_is_there_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    one = agent()
    one.open()
    pass_time(0.2)
    one.ask("close")
    before = daemon.status().clocks
    pass_time(0.6)
    assert daemon.status().clocks == before, "a tool that only looks moves no clock"
    assert before["global_s"] > 0


def test_a_stopped_agent_is_not_live_while_it_stands_and_goes_on_after_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    one = agent()
    one.open()
    suspend(one)
    until(lambda: daemon.status().runs[0].stopped, what="status shows the run as stopped")
    before = daemon.clock()
    stood = pass_time(0.8)
    assert daemon.clock() == before
    one.signal(signal.SIGCONT)
    until(lambda: not daemon.status().runs[0].stopped)
    pass_time(0.4)
    after = daemon.clock()
    assert before + 0.2 < after < before + stood, "the time it stood is not made up for"


def test_a_killed_agent_is_known_dead_within_two_seconds_and_its_exit_pass_runs_m6_m15(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.start()  # at the default sweep of a second
    one = agent()
    one.open()
    one.record("The user wants commit messages in the imperative", producer="user")
    assert daemon.status().last_pass is None
    one.die()
    until(lambda: not live(daemon), within=2.0, what="the run of the dead process has ended")
    status = daemon.status()
    assert status.last_pass is not None and status.last_pass.session == "s", "its exit pass has run"
    assert status.last_pass.promoted == 1


def test_a_zombie_is_dead_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    os.kill(one.pid, signal.SIGKILL)  # and nobody reaps it
    until(lambda: is_dead(one.pid))
    assert Path(f"/proc/{one.pid}/stat").exists(), "the process is still in the table"
    until(lambda: not live(daemon), within=2.0, what="the run of the zombie has ended")


def test_a_death_costs_at_most_one_sweep_of_the_clock_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    before = daemon.clock()
    lived = pass_time(1.5)
    one.die()
    until(lambda: not live(daemon))
    counted = daemon.clock() - before
    assert lived - 1.2 < counted < lived + 0.3


def test_time_while_the_daemon_is_down_is_nobodys_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    one = agent()
    run = one.open(autostart=False)
    pass_time(0.3)
    assert daemon.stop() == 0
    down = pass_time(1.5)
    daemon.start()
    status = daemon.status()
    assert [line.run for line in status.runs] == [run], "the run goes on over the restart"
    assert status.clocks["global_s"] < down
    pass_time(0.5)
    assert status.clocks["global_s"] < daemon.clock() < down, "it moves again, and nothing was made up for"


def test_silence_ends_a_run_with_an_exit_pass_and_the_next_request_begins_it_anew_in_a_new_sitting_m5_m6(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config(QUICK + "[memory]\nrun_idle_after_minutes = 0.015\n")  # 0.9 s
    daemon.start()
    one = agent()
    run = one.open()
    stated = one.record("Deployments go through the staging cluster")
    assert one.record("Deployments go through the staging cluster")["percept"]["evidence"] == 1
    before = daemon.status().runs[0].sitting
    until(lambda: not live(daemon), within=5.0, what="the silent run has ended")
    assert daemon.status().last_pass is not None, "with an exit pass"
    stood = daemon.clock()
    pass_time(0.3)
    assert daemon.clock() == stood, "a silent agent ages nothing"
    again = one.record("Deployments go through the staging cluster")
    line = daemon.status().runs[0]
    assert line.run == run and line.sitting > before
    assert again["id"] == stated["id"] and again["percept"]["evidence"] == 2, "a new sitting may corroborate"


def test_silence_counts_up_to_the_moment_it_ended_the_run_and_no_further_m6(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config("[daemon]\nsweep_s = 0.7\n[memory]\nrun_idle_after_minutes = 0.015\n")  # 0.9 s
    daemon.start()
    one = agent()
    one.open()
    pass_time(2.0)  # nobody asks anything: a sweep notices, half a second late
    status = daemon.status()
    assert not status.runs
    assert 0.88 <= status.clocks["global_s"] <= 0.91
