"""What a sitting is when processes die (M5, M12, M13)."""

from __future__ import annotations

from milk_client import wire
from world import World

from milkd.clocks import Process
from milkd.runs import Sweep
from milkd.service import Peer

FACT = "Builds of harbour need gcc 13"


def dies(world: World, process: Process) -> None:
    """A sweep finds a process gone."""
    world.apply(Sweep(frozenset(), frozenset(), frozenset({process})))


def test_a_run_whose_process_is_gone_earns_no_evidence_by_being_asked_again_m12() -> None:
    world = World({})
    world.attach("hook", "s")
    world.say("hook", FACT)
    first = world.say("hook", FACT).percept
    assert first.evidence == 1
    shell = Peer((Process(4000, 7, "boot"),))
    for _ in range(4):
        dies(world, world.processes["hook"])
        world.advance(2.0)
        told = world.service.apply(wire.Record(by="tool", run="hook", content=FACT), world.now, shell)
        assert isinstance(told, wire.Recorded)
        assert (told.percept.evidence, told.percept.scope) == (1, "session")
    dies(world, world.processes["hook"])
    assert not world.store.clocks.live_runs()
    assert world.store.clocks.runs["hook"].ended == "died"


def test_a_run_that_detached_before_its_process_went_earns_none_either_m12() -> None:
    world = World({})
    world.attach("a", "s")
    world.say("a", FACT)
    world.say("a", FACT)
    world.detach("a")
    dies(world, world.processes["a"])
    assert world.say("a", FACT).percept.evidence == 1


def test_a_child_whose_parent_died_moves_edges_as_before_m13() -> None:
    world = World({})
    world.attach("parent", "s")
    parent = world.processes["parent"]
    child = Process(5000, 9, "boot")
    attach = wire.Attach(by="child", run="child", session="s", role="primary", protocol=wire.PROTOCOL)
    world.service.apply(attach, world.now, Peer((child, parent)))
    ids = [world.say("parent", text).percept.id for text in (FACT, "Deploys wait for review")]
    dies(world, parent)
    for request in (
        wire.Link(by="child", run="child", source=ids[0], target=ids[1], relation="extends"),
        wire.Turn(by="child", run="child"),
    ):
        world.service.apply(request, world.now, Peer((child,)))
    (link,) = world.store.links.values()
    assert link.edge.propagated == 1
    dies(world, child)
    dies(world, parent)
    assert not world.store.clocks.sittings


def test_the_newest_run_is_the_last_begun_whatever_the_wall_clock_says_m5() -> None:
    world = World({})
    world.attach("old", "s")
    ids = [world.say("old", text).percept.id for text in (FACT, "Deploys wait for review")]
    world.ask(wire.Link(by="old", run="old", source=ids[0], target=ids[1], relation="extends"), "old")
    world.turn("old")
    world.advance(1.0, wall_step=-86_400.0)
    world.attach("new", "s")
    world.ask(wire.Get(by="new", run="new", query="builds"), "new")
    world.ask(wire.Consolidate(session="s"))
    (link,) = world.store.links.values()
    assert link.edge.propagated == 2
