"""kill -9 of the daemon, and clean stops: what was answered is there, once (M3, M6, M7, M16)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent
from milk_client import Tool, wire
from running import QUICK, Daemon, is_dead, pass_time, until

Agents = Callable[..., Agent]
READER = Path(__file__).with_name("reader_program.py")
SOAK_S = float(os.environ.get("MILKD_SOAK_S", "0"))
"""Seconds that the campaign of crashes goes on (`make soak`); without it a few rounds."""


@contextmanager
def reader(daemon: Daemon, session: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Another program that reads the files meanwhile; call what it gives for what it saw."""
    process = subprocess.Popen(
        [sys.executable, str(READER), str(daemon.memory), session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"reading\n"

        def stop() -> dict[str, Any]:
            told, _ = process.communicate(b"stop\n", timeout=20)
            found: dict[str, Any] = json.loads(told)
            return found

        yield stop
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def ledger(path: Path) -> tuple[Counter[str], Counter[str]]:
    """The contents asked, and those answered, with how often."""
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        verb, *words = line.split()
        (asked if verb == "asked" else answered)[" ".join(words[:3])] += 1
    return asked, answered


def remembered(daemon: Daemon) -> Counter[str]:
    """Each content that is remembered anywhere, and how often."""
    with daemon.tool(timeout=20) as tool:
        found = [percept.content for percept in tool.list(all_sessions=True)]
        found += [entry.percept.content for entry in tool.archive()]
    return Counter(found)


def said(daemon: Daemon) -> dict[str, int]:
    """How often each content of an agent was said, by its strength: born at 0.70, and 0.05 up each time (M11)."""
    with daemon.tool(timeout=20) as tool:
        found = [percept for percept in tool.list(all_sessions=True) if percept.producer == "primary"]
    return {p.content: 1 + round(((p.w_confirmed or 0.0) - 0.7) / 0.05) for p in found}


def test_each_answered_change_is_there_once_after_kills_at_random_moments_m7(
    daemon: Daemon, agent: Agents, base: Path
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    daemon.write_config(QUICK + "[memory]\nsnapshot_interval_s = 0.2\n")
    daemon.start()
    writers = [agent() for _ in range(3)]
    runs = {one.open(f"s{n}", autostart=False) for n, one in enumerate(writers)}
    ledgers = [base / f"ledger-{n}" for n in range(3)]
    rounds, begin, tag = 0, time.monotonic(), 0
    with reader(daemon, "s0") as stop_reading:
        while rounds < 3 or time.monotonic() - begin < SOAK_S:
            for n, one in enumerate(writers):
                tag += 1
                one.say("stream", who="milk", ledger=str(ledgers[n]), count=40, tag=tag, rich=True)
            for _ in range(2):
                pass_time(chance.uniform(0.0, 0.15))
                daemon.restart()
            for one in writers:
                assert one.answer() == 40, "the agent did not notice"
            assert {line.run for line in daemon.status().runs} == runs, "runs go on under the same id"
            rounds += 1
        # One agent dies in the middle of a request as well: what it never heard of is there once or not at all.
        writers[0].say("stream", who="milk", ledger=str(ledgers[0]), count=10_000, tag=tag + 1, rich=True)
        pass_time(0.3)
        daemon.kill()
        writers[0].die()
        daemon.start()
        seen = stop_reading()
    assert not seen["wrong"] and seen["rounds"] > 10, seen
    found, times = remembered(daemon), said(daemon)
    asked, answered = Counter[str](), Counter[str]()
    for path in ledgers:
        more = ledger(path)
        asked += more[0]
        answered += more[1]
    assert set(answered) <= set(found) <= set(asked)
    assert set(found.values()) == {1}, "each answered change is there, once"
    assert sum((asked - answered).values()) <= 1, "only the agent that died has not heard"
    for content, how_often in times.items():
        assert answered[content] <= how_often <= asked[content], "each statement counted once"
    assert len(times) > rounds * 60
    with daemon.tool() as tool:
        assert len(tool.list(scope="global")) >= rounds * 3 * 4, "some were promoted meanwhile"


def test_the_same_request_sent_again_after_a_kill_acts_once_m5(daemon: Daemon) -> None:
    daemon.start()
    requests: list[wire.Request] = [
        wire.Record(content="Releases are cut on Thursdays", producer="primary", session="s", by="tool", id=number)
        for number in (7, 8)
    ]
    first = [raw(daemon, request) for request in requests]
    daemon.restart()
    again = [raw(daemon, request) for request in requests]
    assert [answer.outcome for answer in again] == [answer.outcome for answer in first] == ["new", "reinforced"]
    with daemon.tool() as tool:
        (percept,) = tool.list()
    assert percept.w_confirmed == pytest.approx(0.75, abs=1e-9), "born once, reinforced once"


def raw(daemon: Daemon, request: wire.Request) -> Any:
    """A request as it is, with the number and sender that it has."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"ipc://{daemon.home.socket}")
        socket.send(wire.encode(request))
        assert socket.poll(20_000), "no answer"
        return wire.decode_reply(socket.recv())


def test_a_crash_loses_no_more_of_the_clock_than_since_the_last_checkpoint_and_counts_nothing_twice_m7(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config("[daemon]\nsweep_s = 0.05\ncheckpoint_s = 0.5\n")
    daemon.start()
    one = agent()
    begin = time.monotonic()
    one.open(autostart=False)
    lived = 0.0
    for _ in range(3):
        pass_time(1.2)  # says nothing: only the checkpoint writes the clock down
        before = daemon.clock()
        daemon.kill()
        daemon.start()
        after = daemon.clock()
        print(before, after, time.monotonic() - begin)
        assert before - 0.9 < after, "half a second and a sweep"
        assert after < time.monotonic() - begin
        assert after >= lived, "the clock never goes back behind what was there"
        lived = after
    assert lived > 1.5, "it went on after each of them, though the agent said nothing"


def test_an_agent_that_dies_while_the_daemon_is_down_gets_its_exit_pass_at_the_start_m6_m15(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config("[daemon]\ncheckpoint_s = 0.1\n")
    daemon.start()
    silent, writer = agent(), agent()
    runs = {silent.open("quiet", autostart=False), writer.open("s", autostart=False)}
    writer.record("The user likes rye bread", producer="user")
    daemon.restart()
    assert {line.run for line in daemon.status().runs} == runs, "both go on, the silent one too"
    daemon.kill()
    writer.die()
    daemon.start()
    until(lambda: [line.session for line in daemon.status().runs] == ["quiet"], within=2.5)
    status = daemon.status()
    assert status.last_pass is not None and (status.last_pass.session, status.last_pass.promoted) == ("s", 1)


def test_use_marks_survive_a_crash_but_for_the_last_seconds_m7_m21(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config("[daemon]\ncheckpoint_s = 0.2\n")
    daemon.start()
    one = agent()
    one.open()
    one.record("Backups run at noon")
    assert [p["content"] for p in one.ask("get", "when do backups run")] == ["Backups run at noon"]
    pass_time(0.6)
    daemon.restart()
    with daemon.tool() as tool:
        assert tool.list()[0].last_used_at


def test_another_program_finds_each_file_whole_and_each_percept_in_one_of_them_m3_m17(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config("[memory]\nsnapshot_interval_s = 0.1\n")
    daemon.start()
    one = agent()
    one.open()
    with reader(daemon, "s") as stop_reading:
        promoted = 0
        for n in range(40):
            one.say("stream", who="milk", ledger=os.devnull, count=5, tag=500 + n)
            assert one.answer() == 5
            told = one.record(f"The user calls machine number {n} by name n{n}", producer="user")
            assert told["outcome"] == "new"
            promoted += one.turn()["promoted"]
        seen = stop_reading()
    assert promoted == 40
    assert not seen["wrong"], seen["wrong"]
    assert seen["rounds"] > 20 and seen["known"] >= 200


def test_when_a_turn_is_answered_both_files_hold_it_m16(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config("[memory]\nsnapshot_interval_s = 1000\n")
    daemon.start()
    one = agent()
    one.open()
    for n in range(15):
        kept = f"Shelf {n} holds crate c{n}"
        raised = f"The user keeps parrot {n} called p{n}"
        one.record(kept)
        one.record(raised, producer="user")
        one.turn()
        assert kept in daemon.contents("s")
        assert raised in daemon.contents("global") and raised not in daemon.contents("s")
    daemon.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stop_takes_five_seconds_at_most_and_the_files_alone_hold_everything(
    daemon: Daemon, agent: Agents, how: signal.Signals
) -> None:
    daemon.write_config("[memory]\nsnapshot_interval_s = 1000\n")
    daemon.start()
    one = agent()
    one.open()
    said = {f"Port {n} belongs to service v{n}" for n in range(1000, 1040)}
    for content in said:
        one.record(content)
    with daemon.tool() as tool:
        tool.learn("Never commit secrets")
    clock = daemon.clock()
    assert daemon.stop(how) == 0  # at once after the last answer
    assert not (daemon.root / "run" / "endpoint").exists()
    for name in ("journal", "state.json"):
        (daemon.memory / name).unlink()
    assert daemon.contents("s") == said and daemon.contents("global") == {"Never commit secrets"}
    daemon.start()
    assert set(remembered(daemon)) == {*said, "Never commit secrets"}
    assert daemon.clock() >= clock, "the clock is in the files too"


def test_a_clean_restart_loses_no_running_time_m7(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config(QUICK)
    daemon.start()
    one = agent()
    one.open()
    pass_time(0.5)
    one.ask("close")
    before = daemon.status().clocks
    for _ in range(2):
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.status().clocks == before


def test_a_request_that_was_read_before_the_stop_is_answered(daemon: Daemon, agent: Agents, base: Path) -> None:
    daemon.start()
    one = agent()
    one.open(autostart=False)
    one.say("stream", who="milk", ledger=str(base / "ledger"), count=300, tag=900)
    pass_time(0.2)
    assert daemon.stop() == 0
    daemon.start()
    assert one.answer() == 300
    found = remembered(daemon)
    _, answered = ledger(base / "ledger")
    assert len(answered) == 300 and all(found[content] == 1 for content in answered)


def test_a_daemon_killed_while_it_stops_has_lost_nothing(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    said = {f"Rack {n} hums at pitch h{n}" for n in range(60)}
    for content in said:
        one.record(content)
    process = daemon.process
    assert process is not None
    process.terminate()
    pass_time(random.uniform(0.0, 0.05))
    daemon.kill()
    assert is_dead(process.pid)
    daemon.start()
    assert set(remembered(daemon)) == said


def test_a_damaged_journal_is_set_aside_once_and_what_is_whole_is_used(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config("[memory]\nsnapshot_interval_s = 1000\n")
    daemon.start()
    one = agent()
    one.open()
    for n in range(10):
        one.record(f"Lamp {n} shines in colour k{n}")
    daemon.kill()
    journal = daemon.memory / "journal"
    data = bytearray(journal.read_bytes())
    at = data.index(b"colour k4")
    data[at] ^= 0xFF
    journal.write_bytes(data)
    daemon.start()
    assert len(remembered(daemon)) == 9
    assert any("journal" in line and "aside" in line for line in daemon.status().health)
    assert daemon.stop() == 0
    daemon.start()
    assert len(list((daemon.memory / "aside").iterdir())) == 1, "known now: not set aside at each start"
    assert not daemon.status().health
    assert len(remembered(daemon)) == 9


def test_nothing_of_an_older_set_is_left_beside_the_files_after_a_crash(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    one.record("Tea is at four")
    daemon.kill()
    (daemon.memory / ".global.json.99.tmp").write_bytes(b"half of a fi")
    daemon.start()
    until(lambda: not list(daemon.memory.glob(".*.tmp")))
    assert set(remembered(daemon)) == {"Tea is at four"}


def test_an_answered_end_of_a_run_and_an_answered_begin_survive_a_kill_m5(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config("[daemon]\ncheckpoint_s = 15\n[memory]\nsnapshot_interval_s = 1000\n")
    daemon.start()
    one = agent()
    one.open()  # the process lives on, its run does not
    one.ask("close")
    with daemon.tool() as tool:
        begun = tool.begin_run("hooked", session="s", role="primary", pid=os.getpid()).run
    daemon.restart()
    live = [line.run for line in daemon.status().runs]
    assert live == [begun]
    with Tool("s", home=daemon.root, autostart=False, run=begun) as tool:
        assert tool.record("The queue is drained at night").outcome == "new"
