"""`AsyncMilk` against a scripted daemon."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from fake_daemon import PATIENCE_S, FakeDaemon, obliging, recorded, seconds
from milk_client import AsyncMilk, Invalid, NoDaemon, Timeout, wire


def milk(home: Path, **more: Any) -> AsyncMilk:
    return AsyncMilk("app", home=home, **({"autostart": False, "timeout": PATIENCE_S} | more))


def mute(kind: type[wire.Request]) -> Any:
    """A script that answers all but one kind."""
    return lambda request: None if isinstance(request, kind) else obliging(request)


def test_a_run_begins_and_ends_with_the_block(home: Path, socket_path: Path) -> None:
    async def main() -> None:
        async with milk(home) as agent:
            assert (await agent.record("x")).percept.content == "x"
            assert (await agent.get("q"))[0].content == "q"
        await agent.close()
        with pytest.raises(Invalid, match="closed"):
            await agent.turn()

    with FakeDaemon(socket_path) as daemon:
        asyncio.run(main())
        assert len(daemon.greetings) == 1
        assert len(daemon.of(wire.Detach)) == 1


def test_tasks_ask_at_once_and_answers_find_them_in_any_order(home: Path, socket_path: Path) -> None:
    held: list[wire.Recorded] = []

    def script(request: wire.Request) -> Any:
        if not isinstance(request, wire.Record):
            return obliging(request)
        answer = recorded(request)
        answer.id = request.id
        held.append(answer)
        return held[::-1] if len(held) == 50 else None

    async def main() -> None:
        async with milk(home) as agent:
            texts = [f"fact {number}" for number in range(50)]
            said = await asyncio.gather(*map(agent.record, texts))
            assert [each.percept.content for each in said] == texts

    with FakeDaemon(socket_path, script) as daemon:
        asyncio.run(main())
        assert len(daemon.greetings) == 1
        assert len(daemon.of(wire.Record)) == 50


def test_tasks_that_come_first_together_attach_once(home: Path, socket_path: Path) -> None:
    async def main() -> None:
        agent = milk(home)
        await asyncio.gather(*(agent.record(str(number)) for number in range(20)))
        await agent.close()

    with FakeDaemon(socket_path) as daemon:
        asyncio.run(main())
        assert len(daemon.greetings) == 1


def test_a_restart_in_mid_call_sends_the_same_bytes_for_every_task(home: Path, socket_path: Path) -> None:
    async def main() -> None:
        agent = milk(home)
        with FakeDaemon(socket_path, mute(wire.Record)) as old:
            calls = [asyncio.create_task(agent.record(str(number))) for number in range(5)]
            await asyncio.to_thread(old.until, lambda: len(old.seen) == 5)
        with FakeDaemon(socket_path, boot="boot-2") as new:
            said = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
            assert [each.percept.content for each in said] == list("01234")
            assert sorted(new.raw) == sorted(old.raw)
            assert [attach.run for attach in new.greetings] == [agent.run_id]
            await agent.close()

    asyncio.run(main())


def test_a_cancelled_call_leaves_the_others_alone(home: Path, socket_path: Path) -> None:
    async def main(daemon: FakeDaemon) -> None:
        async with milk(home) as agent:
            call = asyncio.create_task(agent.record("x"))
            await asyncio.to_thread(daemon.until, lambda: bool(daemon.of(wire.Record)))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await agent.get("q"))[0].content == "q"
            assert daemon.of(wire.Get)[0].ack == daemon.of(wire.Get)[0].id

    with FakeDaemon(socket_path, mute(wire.Record)) as daemon:
        asyncio.run(main(daemon))


def test_a_call_cancelled_while_it_connects_does_no_harm(home: Path, socket_path: Path) -> None:
    async def main() -> None:
        agent = milk(home)
        call = asyncio.create_task(agent.turn())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with FakeDaemon(socket_path):
            await agent.turn()
            await agent.close()

    asyncio.run(main())


def test_a_timeout_is_of_one_call(home: Path, socket_path: Path) -> None:
    async def main() -> None:
        async with milk(home) as agent:
            agent.timeout = 0.2
            with pytest.raises(Timeout, match="may have been done"):
                await agent.record("x")
            agent.timeout = PATIENCE_S
            assert await agent.get("q")

    with FakeDaemon(socket_path, mute(wire.Record)):
        asyncio.run(main())


def test_no_daemon_is_told_at_once(home: Path) -> None:
    started = monotonic()
    with pytest.raises(NoDaemon):
        asyncio.run(milk(home).connect())
    assert seconds(started) < 1.0


def test_one_client_in_two_loops_after_another(home: Path, socket_path: Path) -> None:
    agent = milk(home)

    async def main() -> None:
        assert await agent.get("q")

    with FakeDaemon(socket_path) as daemon:
        asyncio.run(main())
        asyncio.run(main())
        asyncio.run(agent.close())
        assert {attach.run for attach in daemon.greetings} == {agent.run_id}


def test_methods_are_coroutines_with_the_signature_of_what_they_do(home: Path) -> None:
    agent = milk(home)
    assert inspect.iscoroutinefunction(agent.get)
    assert list(inspect.signature(agent.get).parameters) == ["query", "min_confidence", "max_results"]
