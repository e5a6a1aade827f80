"""The client's side of the protocol, without any I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_daemon import percept
from milk_client import (
    Invalid,
    MilkError,
    NotFound,
    Timeout,
    TooLarge,
    UnknownRun,
    VersionMismatch,
    errors,
    wire,
)
from milk_client._calls import Recording, ident
from milk_client._calls import list_ as list_call
from milk_client._session import Sent, Session


def agent(**more: Any) -> Session:
    return Session(session="app", role="primary", **more)


def welcome(**more: Any) -> wire.Welcome:
    fields = {"protocol": 1, "version": "9.9", "pid": 1, "home": "/h", "boot": "b", "events": ""}
    return wire.Welcome(**(fields | more))


def request(sent: Sent) -> Any:
    return wire.decode_request(sent.data)


def test_numbers_go_up_from_one_whatever_is_sent() -> None:
    session = agent()
    numbers = [session.greeting().id, session.encode(wire.Turn()).id, session.greeting().id]
    assert numbers == [1, 2, 3]


def test_ack_is_the_lowest_number_that_may_still_be_sent_again() -> None:
    session = agent()
    first, second = session.encode(wire.Turn()), session.encode(wire.Turn())
    assert (request(first).ack, request(second).ack) == (1, 1)
    session.release(first)
    assert request(session.encode(wire.Turn())).ack == 2
    session.release(second)
    assert request(session.encode(wire.Turn())).ack == 3


def test_every_request_says_who_sends_it() -> None:
    session = agent()
    sent = request(session.encode(wire.Turn()))
    assert (sent.by, sent.run) == (session.client_id, session.run_id)
    assert session.client_id == session.run_id


def test_two_clients_of_one_given_run_never_share_a_number() -> None:
    one, two = agent(run="r"), agent(run="r")
    assert one.run_id == two.run_id == "r"
    assert one.client_id != two.client_id
    assert request(one.greeting()).run == "r"


def test_an_answer_belongs_to_the_request_of_its_number() -> None:
    session = agent()
    one, two = session.encode(wire.Turn()), session.encode(wire.Flush())
    assert session.match(wire.encode(wire.Done(id=two.id))) == (two.id, wire.Done(id=two.id))
    session.release(two)
    assert session.match(wire.encode(wire.Done(id=two.id))) is None
    assert session.match(wire.encode(wire.Done(id=99))) is None
    assert session.match(wire.encode(wire.Done(id=one.id))) is not None


def test_a_fault_without_a_number_belongs_to_the_only_request() -> None:
    session = agent()
    fault = wire.encode(wire.Fault(id=0, code="invalid", message="m"))
    assert session.match(fault) is None
    one = session.encode(wire.Turn())
    matched = session.match(fault)
    assert matched is not None
    assert matched[0] == one.id
    session.encode(wire.Turn())
    assert session.match(fault) is None


@pytest.mark.parametrize("code", [code for code in errors.BY_CODE if code not in ("unknown_run", "version_mismatch")])
def test_a_fault_is_raised_as_the_error_of_its_code(code: str) -> None:
    fault = wire.Fault(code=code, message="what", hint="do", field="content", candidates=["a", "b"])
    with pytest.raises(errors.BY_CODE[code]) as caught:
        agent().settle(fault, 0)
    error = caught.value
    assert type(error) is errors.BY_CODE[code]
    assert (error.message, error.hint, error.field, error.candidates) == ("what", "do", "content", ("a", "b"))


def test_a_fault_of_an_unknown_code_is_an_error_all_the_same() -> None:
    with pytest.raises(MilkError, match="what"):
        agent().settle(wire.Fault(code="brand_new", message="what"), 0)


def test_an_unknown_run_attaches_again_but_not_for_ever_and_a_tool_never() -> None:
    session = agent()
    session.welcome(welcome())
    fault = wire.Fault(code="unknown_run", message="who?")
    assert session.settle(fault, 0) is None
    assert not session.greeted
    with pytest.raises(UnknownRun):
        session.settle(fault, 3)
    with pytest.raises(UnknownRun):
        Session(session="app", role="", tool=True).settle(fault, 0)


@pytest.mark.parametrize(
    "answer",
    [
        wire.Fault(code="version_mismatch", message="no", protocol=7, version="9.9"),
        welcome(protocol=7),
    ],
)
def test_a_daemon_of_another_protocol(answer: Any) -> None:
    with pytest.raises(VersionMismatch) as caught:
        agent().welcome(answer)
    assert f"milk_client {wire.VERSION} speaks protocol {wire.PROTOCOL}" in str(caught.value)
    assert "milkd 9.9) protocol 7" in str(caught.value)
    assert "Upgrade the client" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode({"re": "novelty", "id": 1}),
        msgspec.msgpack.encode({"re": "welcome", "id": 1}),
        msgspec.msgpack.encode({"re": "done", "id": "one"}),
        b"HTTP/1.1 400 Bad Request",
        b"",
    ],
)
def test_an_answer_that_cannot_be_read_is_told_not_waited_for(data: bytes) -> None:
    session = agent()
    sent = session.greeting()
    matched = session.match(data)
    assert matched is not None
    assert matched[0] == sent.id
    with pytest.raises(VersionMismatch):
        session.welcome(matched[1])


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (wire.Record(content="\ud800"), "content"),
        (wire.Record(content="x", roles={"a": "\udfff"}), "roles"),
        (wire.Forget(ids=["ok", "\ud800"]), "ids"),
        (wire.Get(query="x", max_results=1 << 70), "max_results"),
        (wire.Get(query=object()), "query"),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_bytes_is_refused_with_its_field(bad: wire.Request, field: str) -> None:
    session = agent()
    with pytest.raises(Invalid) as caught:
        session.encode(bad)
    assert caught.value.field == field
    assert session.encode(wire.Turn()).id == 1


def test_the_limit_is_the_daemons() -> None:
    session = agent()
    session.welcome(welcome(max_message_bytes=500))
    session.encode(wire.Record(content="x" * 300))
    with pytest.raises(TooLarge):
        session.encode(wire.Record(content="x" * 500))
    assert request(session.encode(wire.Turn())).ack == 1


def test_a_timeout_of_a_change_says_that_it_may_have_been_done() -> None:
    session = agent()
    change = session.encode(wire.Record(content="x"))
    look = session.encode(wire.Status())
    assert "may have been done" in str(session.timed_out(change, 1))
    assert "may have been done" not in str(session.timed_out(look, 1))
    assert isinstance(session.in_doubt(change, NotFound("gone")), NotFound)
    assert "may have been done" in str(session.in_doubt(change, Timeout("late.")))


def test_a_tool_speaks_for_the_run_it_was_found_below() -> None:
    tool = Session(session="derived", role="", tool=True)
    hello = request(tool.greeting())
    assert isinstance(hello, wire.Hello)
    assert (hello.run, hello.session) == ("", "derived")
    tool.welcome(welcome(run="r", session="app", role="escalation"))
    sent = request(tool.encode(wire.Record(content="x")))
    assert (sent.run, sent.session) == ("r", "")
    look = request(tool.encode(wire.List()))
    assert (look.run, look.session, look.role) == ("", "app", "escalation")


def test_a_tool_that_was_told_another_session_does_not() -> None:
    tool = Session(session="other", role="", tool=True, named=True)
    tool.welcome(welcome(run="r", session="app", role="primary"))
    sent = request(tool.encode(wire.Record(content="x")))
    assert (sent.run, sent.session, sent.role) == ("", "other", "")


def test_what_a_request_says_itself_stands() -> None:
    tool = Session(session="app", role="", tool=True)
    tool.welcome(welcome())
    assert request(tool.encode(wire.Detach(run="x"))).run == "x"
    assert request(tool.encode(wire.Consolidate(session="other"))).session == "other"


def test_what_names_a_percept() -> None:
    found = percept(id="abc")
    recording = Recording(id="abc", outcome="new", percept=found, near=[])
    assert {ident(ref, "target") for ref in ("abc", "#abc", " #abc ", found, recording)} == {"abc"}
    for bad in ("", "#", "  ", None, 3):
        with pytest.raises(Invalid) as caught:
            ident(bad, "target")  # type: ignore[arg-type]
        assert caught.value.field == "target"


def test_a_page_that_repeats_itself_ends_the_walk() -> None:
    call = list_call()
    page = wire.Percepts(percepts=[], next="a")
    following = call.next_request(page)
    assert isinstance(following, wire.List)
    assert following.after == "a"
    assert call.next_request(page) is None
    with pytest.raises(MilkError, match="answered 'list' with 'done'"):
        call.next_request(wire.Done())
