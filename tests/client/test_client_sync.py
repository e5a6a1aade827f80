"""`Milk` and `Tool` against a scripted daemon."""

from __future__ import annotations

import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from fake_daemon import PATIENCE_S, FakeDaemon, obliging, percept, recorded, seconds
from milk_client import (
    Invalid,
    Milk,
    NoDaemon,
    Refused,
    Timeout,
    Tool,
    TooLarge,
    VersionMismatch,
    wire,
)


def milk(home: Path, **more: Any) -> Milk:
    return Milk("app", home=home, **({"autostart": False, "timeout": PATIENCE_S} | more))


def test_a_run_begins_and_ends_with_the_block(home: Path, socket_path: Path) -> None:
    with FakeDaemon(socket_path) as daemon:
        with milk(home, role="escalation") as agent:
            assert agent.record("tabs").percept.content == "tabs"
        (attach,) = daemon.greetings
        assert isinstance(attach, wire.Attach)
        assert (attach.run, attach.session, attach.role) == (agent.run_id, "app", "escalation")
        (detach,) = daemon.of(wire.Detach)
        assert detach.run == agent.run_id
        agent.close()
        assert len(daemon.of(wire.Detach)) == 1
        assert agent.parting is None
        with pytest.raises(Invalid, match="closed"):
            agent.turn()
        agent.connect()
        agent.turn()
        agent.close()
        numbers = [request.id for request in daemon.seen + daemon.greetings]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_each_method_asks_and_reads_what_it_should(home: Path, socket_path: Path) -> None:
    one = percept(id="aa")
    edge = wire.Edge("aa", "bb", "updates")
    answers: dict[type[wire.Request], Any] = {
        wire.Record: lambda: wire.Recorded(
            percept=one,
            outcome="reinforced",
            near=[wire.Near(one, "negation")],
            superseded="bb",
            conflicts_with="cc",
        ),
        wire.Get: lambda: wire.Percepts(percepts=[one]),
        wire.Inject: lambda: wire.Injected(text="block", percepts=[one], dropped=2),
        wire.Link: lambda: wire.Linked(edge=edge, created=True),
        wire.Unlink: lambda: wire.Linked(removed=2),
        wire.Forget: lambda: wire.Forgotten(ids=["aa"]),
        wire.Edit: lambda: wire.Changed(percept=one),
        wire.Pin: lambda: wire.Changed(percept=one),
        wire.Unpin: lambda: wire.Changed(percept=one),
        wire.Restore: lambda: wire.Changed(percept=one),
        wire.Show: lambda: wire.Shown(percept=one),
        wire.Turn: lambda: wire.Passed(report=wire.Report(session="app", promoted=3)),
        wire.Conflicts: lambda: wire.ConflictList(conflicts=[wire.Conflict(one, one, edge)]),
    }

    def script(request: wire.Request) -> Any:
        return answers.get(type(request), wire.Done)()

    with FakeDaemon(socket_path, script) as daemon, milk(home) as agent:
        said = agent.record("x", producer="user", same_as="#ab", replaces=one)
        assert (said.id, said.outcome, said.superseded, said.conflicts_with) == (
            "aa",
            "reinforced",
            "bb",
            "cc",
        )
        assert [(near.percept, near.reason) for near in said.near] == [(one, "negation")]
        asked = daemon.of(wire.Record)[-1]
        assert (asked.same_as, asked.replaces, asked.producer, asked.core) == ("ab", "aa", "user", False)
        agent.learn("never commit secrets")
        assert daemon.of(wire.Record)[-1].core
        assert agent.get("q", min_confidence=0.1, max_results=2) == [one]
        block = agent.inject("p")
        assert (block.text, block.percepts, block.dropped) == ("block", [one], 2)
        linked = agent.link(said, one, "updates", supersede=True)
        assert (linked.edge, linked.created) == (edge, True)
        assert agent.unlink(one, "bb") == 2
        assert agent.forget(said, "#bb").ids == ["aa"]
        assert daemon.of(wire.Forget)[-1].ids == ["aa", "bb"]
        assert [agent.edit(one, "y"), agent.pin(one), agent.unpin(one), agent.restore("aa")] == [one] * 4
        assert agent.show(one).percept == one
        assert agent.turn().promoted == 3
        assert agent.conflicts()[0].edge == edge
        agent.flush()


def test_lists_are_read_to_their_end(home: Path, socket_path: Path) -> None:
    pages = {"": (["a", "b"], "b"), "b": (["c"], "c"), "c": ([], "")}

    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.List):
            ids, following = pages[request.after]
            return wire.Percepts(percepts=[percept(id=each) for each in ids], next=following)
        return wire.Done()

    with FakeDaemon(socket_path, script), milk(home) as agent:
        assert [each.id for each in agent.list(pattern="x")] == ["a", "b", "c"]


def test_methods_have_the_signature_and_text_of_what_they_do(home: Path) -> None:
    agent = milk(home)
    assert list(inspect.signature(agent.get).parameters) == ["query", "min_confidence", "max_results"]
    assert "counts as use" in (agent.get.__doc__ or "")


def test_a_fault_is_an_error_and_the_next_call_works(home: Path, socket_path: Path) -> None:
    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.Pin):
            return wire.Fault(code="refused", message="not by an agent", field="target")
        return obliging(request)

    with FakeDaemon(socket_path, script), milk(home) as agent:
        with pytest.raises(Refused, match="not by an agent"):
            agent.pin("aa")
        assert agent.record("x").id


@pytest.mark.parametrize("content", ["a\ud800b", "x" * (2 << 20)])
def test_what_cannot_be_sent_is_not_and_the_next_call_works(home: Path, socket_path: Path, content: str) -> None:
    with FakeDaemon(socket_path) as daemon, milk(home) as agent:
        with pytest.raises((Invalid, TooLarge)):
            agent.record(content)
        assert daemon.seen == []
        assert agent.record("x").id


def test_a_late_answer_goes_to_nobody(home: Path, socket_path: Path) -> None:
    held: list[wire.Recorded] = []

    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.Record) and request.content == "slow":
            held.append(wire.Recorded(id=request.id, percept=percept("slow"), outcome="new"))
            return None
        if isinstance(request, wire.Record):
            return [*held, recorded(request)]
        return obliging(request)

    with FakeDaemon(socket_path, script), milk(home) as agent:
        agent.timeout = 0.2
        with pytest.raises(Timeout, match="may have been done"):
            agent.record("slow")
        agent.timeout = PATIENCE_S
        assert agent.record("quick").percept.content == "quick"
        assert held


def test_a_timeout_of_a_read_says_nothing_of_a_change(home: Path, socket_path: Path) -> None:
    def script(request: wire.Request) -> Any:
        return None if isinstance(request, wire.Get) else obliging(request)

    with FakeDaemon(socket_path, script), milk(home) as agent:
        agent.timeout = 0.2
        with pytest.raises(Timeout) as caught:
            agent.get("x")
        assert "may have been done" not in str(caught.value)


def test_a_request_without_an_answer_is_sent_again_as_it_was(home: Path, socket_path: Path) -> None:
    seen: list[int] = []

    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.Record):
            seen.append(request.id)
            return recorded(request) if len(seen) > 1 else None
        return obliging(request)

    with FakeDaemon(socket_path, script) as daemon, milk(home) as agent:
        agent.timeout = 1.0
        agent.record("x")
        assert daemon.raw[0] == daemon.raw[1]
        assert len(daemon.greetings) == 1


def test_a_restart_in_mid_call_attaches_again_and_sends_the_same_bytes(home: Path, socket_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        agent = milk(home)
        with FakeDaemon(socket_path, lambda request: None if isinstance(request, wire.Record) else wire.Done()) as old:
            said = pool.submit(agent.record, "x")
            old.until(lambda: bool(old.seen))
        with FakeDaemon(socket_path, boot="boot-2") as new:
            assert said.result(PATIENCE_S).percept.content == "x"
            assert new.raw == old.raw
            assert [attach.run for attach in new.greetings] == [agent.run_id]
            assert new.greetings[0].id > old.seen[0].id
            agent.close()


def test_a_restart_between_calls_is_not_noticed(home: Path, socket_path: Path) -> None:
    agent = milk(home)
    with FakeDaemon(socket_path):
        agent.record("x")
    with FakeDaemon(socket_path) as new:
        agent.record("y")
        assert len(new.greetings) == 1
        agent.close()


def test_a_change_that_was_under_way_when_the_daemon_went_for_good(home: Path, socket_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        agent = milk(home, timeout=1.0)
        with FakeDaemon(socket_path, lambda request: None if isinstance(request, wire.Record) else wire.Done()) as old:
            said = pool.submit(agent.record, "x")
            old.until(lambda: bool(old.seen))
        with pytest.raises(NoDaemon, match="may have been done"):
            said.result(PATIENCE_S)
        started = monotonic()
        agent.close()
        assert seconds(started) < 0.5
        assert isinstance(agent.parting, NoDaemon)


def test_an_unknown_run_is_attached_again_and_the_same_bytes_sent(home: Path, socket_path: Path) -> None:
    seen: list[int] = []

    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.Record):
            seen.append(request.id)
            if len(seen) == 1:
                return wire.Fault(code="unknown_run", message="who?")
        return obliging(request)

    with FakeDaemon(socket_path, script) as daemon, milk(home) as agent:
        assert agent.record("x").id
        assert len(daemon.greetings) == 2
        assert daemon.raw[0] == daemon.raw[1]


def test_another_protocol_is_told_at_once(home: Path, socket_path: Path) -> None:
    def script(_: wire.Request) -> Any:
        return wire.Fault(code="version_mismatch", message="no", protocol=7, version="9.9")

    started = monotonic()
    with FakeDaemon(socket_path, script), pytest.raises(VersionMismatch, match=r"9\.9.* protocol 7"):
        milk(home).connect()
    assert seconds(started) < PATIENCE_S / 2


def test_threads_take_turns(home: Path, socket_path: Path) -> None:
    with FakeDaemon(socket_path) as daemon, milk(home) as agent, ThreadPoolExecutor(8) as pool:
        texts = [f"fact {number}" for number in range(400)]
        assert [said.percept.content for said in pool.map(agent.record, texts)] == texts
        assert len(daemon.greetings) == 1
        ids = [request.id for request in daemon.seen]
        assert len(set(ids)) == len(ids)


def test_a_thread_waits_for_its_turn_no_longer_than_its_call_may_take(home: Path, socket_path: Path) -> None:
    asked, release = threading.Event(), threading.Event()

    def script(request: wire.Request) -> Any:
        if isinstance(request, wire.Get):
            asked.set()
            release.wait(PATIENCE_S)
        return obliging(request)

    with FakeDaemon(socket_path, script), milk(home) as agent, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(agent.get, "x")
        assert asked.wait(PATIENCE_S)
        agent.timeout = 0.1
        with pytest.raises(Timeout, match="Other threads"):
            agent.turn()
        release.set()
        agent.timeout = PATIENCE_S
        assert slow.result(PATIENCE_S)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_a_run_of_its_own(home: Path, socket_path: Path) -> None:
    with FakeDaemon(socket_path) as daemon, milk(home) as agent:
        agent.record("parent")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = agent.record("child").percept.content
                agent.close()
                os.write(write, f"{agent.run_id} {said}".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            run, said = pipe.read().split()
        os.waitpid(child, 0)
        assert said == "child"
        assert run != agent.run_id
        agent.record("parent again")
        assert [attach.run for attach in daemon.greetings] == [agent.run_id, run]
        assert [detach.run for detach in daemon.of(wire.Detach)] == [run]
        assert [request.run for request in daemon.of(wire.Record)] == [agent.run_id, run, agent.run_id]


@pytest.mark.parametrize(
    ("bad", "field"),
    [({"role": "boss"}, "role"), ({"timeout": 0}, "timeout"), ({"timeout": float("nan")}, "timeout")],
)
def test_bad_arguments(home: Path, bad: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        milk(home, **bad)
    assert caught.value.field == field


def test_role_and_session_come_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Milk(home=home).role == "primary"
    monkeypatch.setenv("MILK_ROLE", "escalation")
    monkeypatch.setenv("MILK_SESSION", "mine")
    assert (Milk(home=home).role, Milk(home=home).session) == ("escalation", "mine")
    assert (Milk("yours", "primary", home=home).role, Milk("yours", home=home).session) == (
        "primary",
        "yours",
    )


def test_a_tool_says_hello_and_ends_nothing(home: Path, socket_path: Path) -> None:
    with FakeDaemon(socket_path) as daemon:
        with Tool("app", home=home, autostart=False) as tool:
            tool.record("x")
            assert isinstance(tool.ask(wire.Flush()), wire.Done)
            assert tool.welcome.boot == "boot-1"
            assert isinstance(tool.begin_run("r", session="app", pid=7), wire.Welcome)
        hello, attach = daemon.greetings
        assert isinstance(hello, wire.Hello)
        assert isinstance(attach, wire.Attach)
        assert (attach.run, attach.pid) == ("r", 7)
        assert daemon.of(wire.Detach) == []
        record = daemon.of(wire.Record)[0]
        assert (record.run, record.session, record.role) == ("", "app", "")
