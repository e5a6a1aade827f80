"""Whatever is sent: an error that names what is wrong, memory untouched, the connection usable, and counted."""

from __future__ import annotations

import contextlib
import math
import random
import resource
import socket as plain
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import zmq
from milk_client import Ambiguous, Invalid, Milk, MilkError, NotFound, Tool, TooLarge, wire
from running import Daemon, until

MIB = 1 << 20
FACTS = ("The build runs on falcon", "Lunch is at noon")


@pytest.fixture
def serving(daemon: Daemon) -> Daemon:
    daemon.start()
    return daemon


@pytest.fixture
def milk(serving: Daemon) -> Iterator[Milk]:
    with Milk("s", home=serving.root, autostart=False, timeout=20) as found:
        for fact in FACTS:
            found.record(fact)
        yield found


def memory(daemon: Daemon) -> tuple[Any, ...]:
    """All that is remembered, but for what moves with time; and who is there."""
    with daemon.tool() as tool:
        percepts = sorted((p.id, p.content, p.w_confirmed, p.evidence, p.updated_at) for p in tool.list())
        return percepts, [entry.percept.id for entry in tool.archive()], [line.session for line in tool.sessions()]


def faults(daemon: Daemon) -> int:
    return int(sum(daemon.status().counts["faults"].values()))


SOME = "00000000-0000-4000-8000-000000000000"
CALLS: dict[str, tuple[str, type[MilkError], Callable[[Milk], object]]] = {
    "empty content": ("content", Invalid, lambda m: m.record("")),
    "white space": ("content", Invalid, lambda m: m.record(" \n\t  ")),
    "a byte too many": ("content", TooLarge, lambda m: m.record("x" * 2001)),
    "bytes, not characters": ("content", TooLarge, lambda m: m.record("ü" * 1001)),
    "half a message limit": ("content", TooLarge, lambda m: m.record("word " * 100_000)),
    "2 MiB": ("message", TooLarge, lambda m: m.record("x" * 2 * MIB)),
    "lone surrogate": ("content", Invalid, lambda m: m.record("half \ud800 of one")),
    "surrogate in a query": ("query", Invalid, lambda m: m.get("\udfff")),
    "unknown producer": ("producer", Invalid, lambda m: m.record("x is y", producer="nobody")),  # type: ignore[arg-type]
    "unknown consumer": ("consumer", Invalid, lambda m: m.record("x is y", consumer="all")),  # type: ignore[arg-type]
    "roles that are none": ("roles", Invalid, lambda m: m.record("x is y", roles=5)),
    "unknown role name": ("roles", Invalid, lambda m: m.record("x is y", roles={"who": "me"})),
    "core and same_as": ("core", Invalid, lambda m: m.record("x is y", core=True, same_as=SOME)),
    "long subject": ("subject", TooLarge, lambda m: m.record("x is y", subject="s" * 201)),
    "same_as nobody": ("same_as", NotFound, lambda m: m.record("x is y", same_as=SOME)),
    "replaces nobody": ("replaces", NotFound, lambda m: m.record("x is y", replaces=SOME)),
    "NaN": ("min_confidence", Invalid, lambda m: m.get("falcon", min_confidence=math.nan)),
    "infinity": ("min_confidence", Invalid, lambda m: m.get("falcon", min_confidence=math.inf)),
    "negative confidence": ("min_confidence", Invalid, lambda m: m.get("falcon", min_confidence=-0.1)),
    "no results wanted": ("max_results", Invalid, lambda m: m.get("falcon", max_results=0)),
    "minus one result": ("max_results", Invalid, lambda m: m.get("falcon", max_results=-1)),
    "min_w NaN": ("min_w", Invalid, lambda m: m.list(min_w=math.nan)),
    "long query": ("query", Invalid, lambda m: m.get("q" * 100_001)),
    "long prompt": ("prompt", Invalid, lambda m: m.inject("q" * 100_001)),
    "empty id": ("ids", Invalid, lambda m: m.forget("")),
    "no ids": ("ids", Invalid, lambda m: m.forget()),
    "id of words": ("ids", Invalid, lambda m: m.forget("not an id")),
    "id too short": ("target", Invalid, lambda m: m.show("abc")),
    "id with dots": ("target", Invalid, lambda m: m.edit("../../etc", "x")),
    "id too long": ("target", Invalid, lambda m: m.pin("a" * 500)),
    "id of nobody": ("target", NotFound, lambda m: m.edit(SOME, "x")),
    "unknown relation": ("relation", Invalid, lambda m: m.link(SOME, SOME, "likes")),  # type: ignore[arg-type]
    "edge from nobody": ("source", NotFound, lambda m: m.link(SOME, SOME, "extends")),
    "no edge": ("source", NotFound, lambda m: m.unlink(SOME, SOME)),
    "empty edit": ("content", Invalid, lambda m: m.edit(m.list()[0], "  ")),
    "edge to itself": ("target", Invalid, lambda m: m.link(m.list()[0], m.list()[0], "extends")),
    "supersede with extends": (
        "supersede",
        Invalid,
        lambda m: m.link(m.list()[0], m.list()[1], "extends", supersede=True),
    ),
}


@pytest.mark.parametrize("call", CALLS, ids=lambda name: name.replace(" ", "-"))
def test_a_bad_argument_is_named_and_changes_nothing(bad: tuple[Daemon, Milk], call: str) -> None:
    daemon, milk = bad
    field, kind, do = CALLS[call]
    before = memory(daemon)
    with pytest.raises(kind) as caught:
        do(milk)
    assert caught.value.field == field
    assert caught.value.message and caught.value.hint
    assert memory(daemon) == before
    assert milk.get("build falcon")[0].content == FACTS[0], "the connection goes on"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Milk]]:
    """One daemon for all bad arguments: what one of them broke, the next would show."""
    base = tmp_path_factory.mktemp("bad")
    daemon = Daemon(base / "h", base / "log")
    try:
        daemon.start()
        with Milk("s", home=daemon.root, autostart=False, timeout=20) as milk:
            for fact in FACTS:
                milk.record(fact)
            yield daemon, milk
    finally:
        daemon.finish()


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "global", "Archive", "STATE", "x" * 129, "x" * 200, "ü"])
def test_a_session_that_is_no_file_name_is_refused_by_client_and_daemon_m3(bad: tuple[Daemon, Milk], name: str) -> None:
    daemon, _ = bad
    before = memory(daemon)
    with pytest.raises(Invalid) as caught:
        Milk(name, home=daemon.root)
    assert caught.value.field == "session"
    for request in (
        wire.Record(content="Nobody says this", session=name),
        wire.Attach(protocol=wire.PROTOCOL, run="r1", by="r1", session=name),
        wire.RenameSession(old="s", new=name),
        wire.Consolidate(session=name),
    ):
        with dealer(daemon) as socket:
            told = ask(socket, wire.encode(request))
            assert isinstance(told, wire.Fault) and told.code in ("invalid", "refused"), told
            assert told.field, told
    assert memory(daemon) == before
    assert {p.name for p in daemon.root.iterdir()} <= {"memory", "run"}
    assert {p.stem for p in daemon.memory.glob("*.json")} <= {"s", "global", "state", "archive"}


def test_two_sessions_that_differ_by_case_alone_are_refused_m3(serving: Daemon, milk: Milk) -> None:
    assert milk.session == "s"
    with pytest.raises(Invalid) as caught, Milk("S", home=serving.root, autostart=False):
        pass
    assert caught.value.field == "session" and "case" in caught.value.message


def test_an_ambiguous_prefix_lists_the_candidates_m20(daemon: Daemon) -> None:
    daemon.memory.mkdir(parents=True, mode=0o700)
    twins = [f"abcd{n}000-0000-4000-8000-000000000000" for n in range(2)]
    percepts = [
        {"id": one, "content": f"Fact {one}", "producer": "primary", "w": 0.7, "roles": {}}
        | {"created_at": "2026-01-05T09:00:00Z", "updated_at": "2026-01-05T09:00:00Z"}
        for one in twins
    ]
    (daemon.memory / "s.json").write_bytes(msgspec.json.encode({"percepts": percepts, "engrams": [], "edges": []}))
    daemon.start()
    with daemon.tool() as tool:
        with pytest.raises(Ambiguous) as caught:
            tool.forget("#abcd")
        assert sorted(caught.value.candidates) == twins
        assert tool.show("#abcd1").percept.id == twins[1]
        assert len(tool.list()) == 2


# ---------------------------------------------------------------- frames


@contextlib.contextmanager
def dealer(daemon: Daemon) -> Iterator[zmq.Socket[bytes]]:
    """A bare connection."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"ipc://{daemon.home.socket}")
        yield socket


def ask(socket: zmq.Socket[bytes], *frames: bytes) -> Any:
    socket.send_multipart(frames)
    assert socket.poll(20_000), f"no answer to {frames[0][:60]!r}"
    return wire.decode_reply(socket.recv())


def pack(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


GARBAGE: dict[str, tuple[str, str, tuple[bytes, ...]]] = {
    "empty frame": ("invalid", "message", (b"",)),
    "text": ("invalid", "", (b"GET / HTTP/1.1\r\n\r\n",)),
    "json": ("invalid", "", (b'{"op": "status"}',)),
    "half a map": ("invalid", "message", (pack(op="status", id=7)[:-1],)),
    "more after the map": ("invalid", "message", (pack(op="status", id=7) + b"x",)),
    "nested without end": ("invalid", "", (b"\x91" * 200_000,)),
    "a huge array that is not there": ("invalid", "", (b"\xdd\xff\xff\xff\xff",)),
    "not a map": ("invalid", "", (msgspec.msgpack.encode([1, 2]),)),
    "no op": ("invalid", "", (pack(id=7),)),
    "unknown op": ("invalid", "", (pack(op="fly", id=7),)),
    "op of another type": ("invalid", "", (pack(op=12, id=7),)),
    "unknown field": ("invalid", "", (pack(op="status", id=7, colour="red"),)),
    "missing field": ("invalid", "", (pack(op="record", id=7),)),
    "content is a number": ("invalid", "content", (pack(op="record", id=7, content=1),)),
    "content is not UTF-8": ("invalid", "", (b"\x82\xa2op\xa6record\xa7content\xa2\xff\xfe",)),
    "id below 0": ("invalid", "id", (pack(op="status", id=-1),)),
    "id beyond 2^53": ("invalid", "id", (pack(op="status", id=1 << 60),)),
    "by too long": ("invalid", "by", (pack(op="status", id=7, by="b" * 201),)),
    "unknown role": ("invalid", "role", (pack(op="status", id=7, role="king"),)),
    "limit 0": ("invalid", "limit", (pack(op="list", id=7, limit=0),)),
    "limit beyond": ("invalid", "limit", (pack(op="list", id=7, limit=1_000_000),)),
    "two parts": ("invalid", "", (pack(op="status", id=7), b"and more")),
    "delimiter first": ("invalid", "", (b"", pack(op="status", id=7))),
    "oversized": ("too_large", "message", (pack(op="record", id=7, content="x" * MIB),)),
    "protocol of tomorrow": ("version_mismatch", "", (pack(op="attach", id=7, protocol=99, by="r", run="r"),)),
    "attach of tomorrow": ("version_mismatch", "", (pack(op="attach", id=7, protocol=99, flavour="new"),)),
    "hello of tomorrow": ("version_mismatch", "", (pack(op="hello", id=7, protocol=2),)),
    "protocol 0": ("version_mismatch", "", (pack(op="hello", id=7, protocol=0),)),
    "run of nobody": ("unknown_run", "run", (pack(op="turn", id=7, run="nobody", by="nobody"),)),
    "turn without a run": ("invalid", "run", (pack(op="turn", id=7),)),
    "attach for nobody": ("invalid", "pid", (pack(op="attach", id=7, protocol=1, run="r", by="r", pid=1 << 30),)),
}


@pytest.mark.parametrize("what", GARBAGE, ids=lambda name: name.replace(" ", "-"))
def test_a_message_that_is_none_gets_an_error_and_is_counted(bad: tuple[Daemon, Milk], what: str) -> None:
    daemon, milk = bad
    code, field, frames = GARBAGE[what]
    before, counted = memory(daemon), faults(daemon)
    with dealer(daemon) as socket:
        told = ask(socket, *frames)
        assert isinstance(told, wire.Fault), told
        assert told.code == code, told
        if field:
            assert told.field == field, told
        assert told.message
        if code == "version_mismatch":
            assert told.protocol == wire.PROTOCOL and told.version, "it says what it speaks"
            assert "99" in told.message or "2" in told.message or "0" in told.message
        good = ask(socket, pack(op="status", id=8))
        assert isinstance(good, wire.Statused) and good.id == 8, "the same connection goes on"
    assert memory(daemon) == before
    assert faults(daemon) == counted + 1
    assert milk.get("build falcon")


def test_an_error_carries_the_number_of_its_request(bad: tuple[Daemon, Milk]) -> None:
    daemon, _ = bad
    with dealer(daemon) as socket:
        assert ask(socket, pack(op="fly", id=31)).id == 31
        assert ask(socket, pack(op="record", content=5, id=32)).id == 32
        assert ask(socket, pack(op="record", content="", id=33)).id == 33


def test_what_is_no_zeromq_at_all_disturbs_nobody(bad: tuple[Daemon, Milk]) -> None:
    daemon, milk = bad
    chance = random.Random(7)
    junk = [chance.randbytes(chance.choice((1, 9, 64, 1000))) for _ in range(300)]
    for data in (
        b"",
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + b"\0" * 8 + b"\x7f" + b"\3\0NULL" + b"\0" * 48,
        b"\x01\x00\x05\x00hello",  # a greeting and a message of the first ZMTP
        b"\x01\x00" * 50,
        *junk,
    ):
        with plain.socket(plain.AF_UNIX) as raw:
            raw.connect(str(daemon.home.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                raw.sendall(data)
    assert milk.get("build falcon")
    assert daemon.process is not None and daemon.process.poll() is None, "it is the same daemon"


def test_more_connections_than_a_login_shell_allows_files(daemon: Daemon) -> None:
    """libzmq aborts the process that cannot accept: the daemon raises its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 600
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2000)), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            raw = stack.enter_context(plain.socket(plain.AF_UNIX))
            raw.connect(str(daemon.home.socket))
        assert daemon.status().pid == daemon.pid
    assert daemon.process is not None and daemon.process.poll() is None


def test_a_message_far_beyond_the_limit_is_dropped_and_the_daemon_stays_small(bad: tuple[Daemon, Milk]) -> None:
    daemon, milk = bad
    before = daemon.status().process["rss_bytes"]
    for _ in range(3):
        with dealer(daemon) as socket:
            socket.send(b"x" * (40 * MIB))
            assert milk.get("build falcon")
    grown = daemon.status().process["rss_bytes"] - before
    assert grown < 60 * MIB


def test_a_client_that_never_reads_loses_its_replies_and_nobody_elses(bad: tuple[Daemon, Milk]) -> None:
    daemon, milk = bad
    with dealer(daemon) as deaf:
        deaf.rcvhwm = 1
        for n in range(3000):
            with contextlib.suppress(zmq.Again):
                deaf.send(pack(op="list", id=n + 1), zmq.NOBLOCK)
        assert milk.get("build falcon")
    assert milk.record("The deaf one is gone").outcome in ("new", "reinforced")
    milk.forget(milk.list(pattern="deaf")[0])


def test_a_flood_of_flushes_of_one_client_is_bounded_and_the_others_go_on(bad: tuple[Daemon, Milk]) -> None:
    daemon, milk = bad
    with dealer(daemon) as socket:
        for n in range(200):
            socket.send_multipart((pack(op="record", id=2 * n + 1, content=f"Flood {n} is f{n}", by="flood"),))
            socket.send_multipart((pack(op="flush", id=2 * n + 2, by="flood"),))
        answers = []
        while len(answers) < 400:
            assert socket.poll(20_000), "each request has an answer"
            answers.append(wire.decode_reply(socket.recv()))
    assert {type(a).__name__ for a in answers} <= {"Recorded", "Done", "Fault"}
    assert {a.code for a in answers if isinstance(a, wire.Fault)} <= {"overloaded"}
    with daemon.tool(session="default") as tool:
        tool.forget(*tool.list(pattern="Flood"))
    assert milk.get("build falcon")


def test_a_client_that_goes_away_in_mid_request_leaves_nothing_behind(bad: tuple[Daemon, Milk]) -> None:
    daemon, milk = bad
    for n in range(20):
        with dealer(daemon) as socket:
            socket.send(pack(op="status", id=n + 1))
    until(lambda: daemon.status().counts["messages"] is not None)
    assert milk.get("build falcon")


def test_an_internal_field_of_a_percept_cannot_be_set_from_outside(bad: tuple[Daemon, Milk]) -> None:
    daemon, _ = bad
    before = memory(daemon)
    with dealer(daemon) as socket:
        for field in ("w", "w_confirmed", "evidence", "created_at", "scope", "idle_seconds"):
            told = ask(socket, pack(op="record", id=7, content="Minted from nothing", **{field: 1}))
            assert isinstance(told, wire.Fault) and field in told.message
    assert memory(daemon) == before


def test_a_tool_meets_an_error_and_is_usable_after_it(bad: tuple[Daemon, Milk]) -> None:
    daemon, _ = bad
    with Tool("s", home=daemon.root, run="", autostart=False) as tool:
        for _ in range(3):
            with pytest.raises(NotFound):
                tool.show(SOME)
        assert len(tool.list()) == len(FACTS)
