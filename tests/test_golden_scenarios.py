"""The golden scenarios of an independent implementation, through the one door (all rules at once)."""

from __future__ import annotations

from typing import Any

import pytest
from golden import vectors
from milk_client import wire
from milk_client.errors import Refused
from world import World

from milkd.consolidation import rank_of
from milkd.rules.percept import GLOBAL

COUNTS = ("decayed", "pruned", "promoted", "promotion_deferred", "global_decayed", "archived", "evicted")


def play(scenario: dict[str, Any]) -> None:
    world = World(scenario["knobs"])
    for number, step in enumerate(scenario["steps"]):
        where = f"{scenario['name']}, step {number}: {step['op']}"
        report = STEPS[step["op"]](world, step)
        if "report" in step:
            assert {k: getattr(report, k) for k in COUNTS} == step["report"], where
        if "after" in step:
            check(world, step["after"], where)


def attach(world: World, step: dict[str, Any]) -> None:
    world.attach(step["run"], step["session"], process=step.get("process", ""))


def record(world: World, step: dict[str, Any]) -> None:
    request = wire.Record(
        by=step["run"],
        run=step["run"],
        content=step["content"],
        producer=step.get("producer", "primary"),
        core=step.get("core", False),
        same_as=world.names.get(step.get("same_as", ""), ""),
        replaces=world.names.get(step.get("replaces", ""), ""),
    )
    if step["outcome"] == "refused":
        with pytest.raises(Refused):
            world.ask(request, step["run"])
        return
    reply = world.ask(request, step["run"])
    assert reply.outcome == step["outcome"], step
    if reply.outcome == "new":
        world.names[step["as"]] = reply.percept.id
    assert reply.percept.id == world.names[step["percept"]], step


def use(world: World, step: dict[str, Any]) -> None:
    held = world.store.percepts[world.names[step["percept"]]]
    world.ask(wire.Get(query=held.record.content, max_results=1, session=held.scope if held.scope != GLOBAL else ""))


def link(world: World, step: dict[str, Any]) -> None:
    ends = {"source": world.names[step["from"]], "target": world.names[step["to"]]}
    world.ask(wire.Link(**ends, relation=step["relation"], session=session_of(world, ends)))


def session_of(world: World, ends: dict[str, str]) -> str:
    scopes = {world.store.percepts[i].scope for i in ends.values() if i in world.store.percepts} - {GLOBAL}
    return scopes.pop() if scopes else ""


STEPS: dict[str, Any] = {
    "attach": attach,
    "record": record,
    "use": use,
    "link": link,
    "unlink": lambda w, s: w.ask(wire.Unlink(source=w.names[s["from"]], target=w.names[s["to"]])),
    "advance": lambda w, s: w.advance(s["seconds"]),
    "turn": lambda w, s: w.ask(wire.Turn(by=s["run"], run=s["run"]), s["run"]).report,
    "detach": lambda w, s: w.ask(wire.Detach(by=s["run"], run=s["run"]), s["run"]).report,
    "consolidate": lambda w, s: w.ask(wire.Consolidate(session=s["session"])).report,
    "forget": lambda w, s: w.ask(wire.Forget(ids=[w.names[s["percept"]]])),
}


def check(world: World, after: dict[str, Any], where: str) -> None:
    store = world.store
    for name, expected in after["live"].items():
        held = store.percepts.get(world.names[name])
        assert held is not None, f"{where}: {name} should live"
        assert store.lives(held), f"{where}: {name} should live"
        got = {
            "scope": "global" if held.scope == GLOBAL else "session",
            "w": store.present(held),
            "w_confirmed": store.confirmed(held),
            "evidence": held.record.evidence,
            "producer": held.record.producer,
            "core": held.record.core,
            "idle_seconds": store.idle_s(held),
            "rank": rank_of(store, held, world.now.wall),
        }
        for key, value in expected.items():
            if isinstance(value, float):
                assert got[key] == pytest.approx(value, abs=1e-9, rel=1e-9), f"{where}: {name}.{key}"
            else:
                assert got[key] == value, f"{where}: {name}.{key}"
    for name, reason in after["gone"].items():
        percept_id = world.names[name]
        gone = store.archive.get(percept_id)
        held = store.percepts.get(percept_id)
        unswept = held is not None and not store.lives(held)
        fate = gone.reason if gone else "pruned" if unswept else "forgotten or merged"
        assert fate == reason or (reason in ("forgotten", "merged") and fate == "forgotten or merged"), where


SCENARIOS = vectors("running-time")["scenarios"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[s["name"] for s in SCENARIOS])
def test_scenario(scenario: dict[str, Any]) -> None:
    play(scenario)
    assert scenario["steps"]
