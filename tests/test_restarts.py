"""Any history at all on a real folder, broken off anywhere: what was answered is there again (M3, M7, M19, M20).

What must be there after a restart is the picture that was taken when it was last put on disk. It is compared with
what the next start reads, to the last number; what had been answered since then may differ by the clocks alone.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faults import Disk, How, PowerCut
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kept import Kept, in_files, percept, without_journal
from milk_client import wire
from milk_client.errors import MilkError
from msgspec.structs import asdict, replace
from world import DAY_S, check_invariants

from milkd.journal import scan
from milkd.rules.percept import GLOBAL, Held
from milkd.scrubbing import scrubbed
from milkd.service import Checkpoint
from milkd.store import Store

Picture = dict[str, dict[str, Any]]
File = dict[str, Any]
RUNS = {"a": "one", "b": "one", "c": "two"}
CHECKPOINT_S = 15.0
"""What a crash may cost of running time (M7)."""
SESSION_HALF_LIFE_DAYS, GLOBAL_HALF_LIFE_DAYS, FLOOR = 3.0, 60.0, 0.2
TEXTS = (
    "The user prefers tabs over spaces here",
    "The user prefers tabs over spaces",
    "Deploy on Friday evening after review",
    'The vault says "märzipan" {twice}',
    "Host is falcon",
    "Host is osprey",
    "Rows are kept in cold storage",
)
runs = st.sampled_from(sorted(RUNS))
anyone = st.sampled_from(["", *RUNS])
texts = st.sampled_from(TEXTS)
picks = st.integers(0, 30)
cuts = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))


# ---------------------------------------------------------------- pictures


def seen(store: Store, held: Held) -> dict[str, Any]:
    """A percept as anybody may see it: numbers as of now. What is archived has no idle time: it comes back with 0."""
    group = store.groups.get(held.record.engram_id)
    told = asdict(store.record(held))
    told["idle_seconds"] = float(told["idle_seconds"] or 0.0) if held.id in store.percepts else 0.0
    return {**told, "scope": held.scope, "subject": group.label if group else "", "extra": held.extra}


def picture(store: Store) -> Picture:
    """All that is remembered now, as plain values that nothing changes any more."""
    clocks = store.clocks
    return {
        "living": {i: seen(store, held) for i, held in store.percepts.items()},
        "archive": {
            i: {**seen(store, gone.held), "reason": gone.reason, "at": gone.at, "successor": gone.successor}
            for i, gone in store.archive.items()
        },
        "edges": {key: {**asdict(link.edge), "extra": link.extra} for key, link in store.links.items()},
        "engrams": {i: (group.label, group.scope) for i, group in store.groups.items()},
        "runs": {i: asdict(run) for i, run in clocks.runs.items()},
        "sittings": {str(n): asdict(sitting) for n, sitting in clocks.sittings.items()},
        "clocks": {scope: seconds for scope, seconds in clocks.readings().items() if seconds},
        "outcomes": {f"{c} {n}": kept.outcome for c, mine in store.replies.items() for n, kept in mine.items()},
        "forgotten": {key: wall for key, wall in store.meta.items() if key.startswith("forgotten:")},
        "event": {"": store.event},
    }


def same(one: Any, other: Any) -> bool:
    """Equal; numbers to the last billionth, seconds to the last millionth."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= (1e-9 if max(one, other) <= 1.0 else 1e-6)
    return bool(one == other)


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """What two pictures do not agree about."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = {**one, **other}
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{where} {key}")]
    return [] if same(one, other) else [f"{where}: {one!r} and {other!r}"]


def aged(told: dict[str, Any], lived_s: float) -> float:
    """The strength of a percept that lived so much longer, by M9 alone."""
    w, is_global = told["w"], told["scope"] == GLOBAL
    if told["core"] or (is_global and w <= FLOOR):
        return float(w)
    floor = FLOOR if is_global else 0.0
    half_life_s = (GLOBAL_HALF_LIFE_DAYS if is_global else SESSION_HALF_LIFE_DAYS) * DAY_S
    return float(floor + (w - floor) * 2 ** (-lived_s / half_life_s))


def check_loss(kept: Picture, known: Picture) -> None:
    """What a crash now would cost: at most some running time, and which percepts were used meanwhile (M7, M21)."""
    lost = {scope: seconds - kept["clocks"].get(scope, 0.0) for scope, seconds in known["clocks"].items()}
    assert all(-1e-6 <= seconds <= CHECKPOINT_S + 1e-6 for seconds in lost.values()), lost
    for table in ("living", "archive"):
        assert kept[table].keys() == known[table].keys()
        for percept_id, told in kept[table].items():
            now = known[table][percept_id]
            assert math.isclose(now["w"], aged(told, lost.get(told["scope"], 0.0)), abs_tol=1e-9)
            flows = dict.fromkeys(("w", "w_confirmed", "idle_seconds", "last_used_at"))
            assert {**now, **flows} == {**told, **flows}
            assert math.isclose(now["w_confirmed"], told["w_confirmed"], abs_tol=1e-9)
    for table in ("edges", "engrams", "forgotten"):
        assert kept[table] == known[table]


# ---------------------------------------------------------------- the machine


class Restarts(RuleBasedStateMachine):
    """Requests of three runs and of a person, files, edits by hand, and ends of every kind."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="milk-"))
        self.patch = pytest.MonkeyPatch()
        self.disk = Disk(self.patch)
        self.numbers = itertools.count(1)
        self.kept: Picture = {}
        self.last: tuple[wire.Ask, str, Any] | None = None
        self.own = itertools.count(1)
        self.unwritten = False
        self.take_over(Kept(self.folder / "home"))
        for run, session in RUNS.items():
            self.world.attach(run, session, process="p" if run == "b" else run)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.world.die()
            self.patch.undo()
            shutil.rmtree(self.folder)

    def take_over(self, world: Kept) -> None:
        """Go on with a world that has just started; from now on each commit takes a picture."""
        self.world = world
        commit = world.keeper.commit

        def committed() -> None:
            commit()
            self.kept = picture(world.store)

        self.patch.setattr(world.keeper, "commit", committed)
        self.kept = picture(world.store)

    def some_id(self, pick: int, *, living: bool = False) -> str:
        """One of the ids there are."""
        ids = [*self.world.store.percepts, *([] if living else self.world.store.archive)]
        return ids[pick % len(ids)] if ids else "abcd"

    def ask(self, request: Any, run: str = "") -> Any:
        """A request, as the daemon does it: what silence ended before a refusal is written down all the same."""
        asked = replace(request, by=run or "tool", run=run, id=next(self.numbers))
        store = self.world.store
        self.last = None
        try:
            answer = self.world.ask(asked, run)
        except MilkError:
            if store.must_sync():
                self.world.keeper.commit()
            return None
        assert store.settled() or not isinstance(asked, wire.CHANGES) or not store.must_sync(), "answered = on disk"
        if isinstance(asked, wire.CHANGES):
            self.last = asked, run, answer
        return answer

    # ------------------------------------------------------------ what is asked

    @rule(
        run=anyone,
        text=texts,
        producer=st.sampled_from(["user", "primary", "primary", "system"]),
        core=st.sampled_from([False, False, False, True]),
        subject=st.sampled_from(["", "", "style", "hosts"]),
        how=st.sampled_from(["", "", "", "same_as", "replaces"]),
        pick=picks,
    )
    def record(self, run: str, text: str, producer: Any, core: bool, subject: str, how: str, pick: int) -> None:
        more = {how: self.some_id(pick)} if how else {}
        self.ask(wire.Record(session="one", content=text, producer=producer, core=core, subject=subject, **more), run)

    @rule(run=runs)
    def turn(self, run: str) -> None:
        self.ask(wire.Turn(), run)

    @rule(run=runs)
    def leave_and_come_back(self, run: str) -> None:
        """Another process, so another sitting."""
        self.ask(wire.Detach(), run)
        self.world.attach(run, RUNS[run], process=f"{run} {next(self.numbers)}")

    @rule(
        one=picks,
        other=picks,
        relation=st.sampled_from(["extends", "updates", "contradicts"]),
        supersede=st.booleans(),
    )
    def link(self, one: int, other: int, relation: Any, supersede: bool) -> None:
        ends = {"source": self.some_id(one), "target": self.some_id(other)}
        self.ask(wire.Link(**ends, relation=relation, supersede=supersede and relation == "updates"))

    @rule(one=picks, other=picks)
    def unlink(self, one: int, other: int) -> None:
        self.ask(wire.Unlink(source=self.some_id(one), target=self.some_id(other)))

    @rule(pick=picks, what=st.sampled_from([wire.Pin, wire.Unpin, wire.Restore, wire.Edit]), text=texts, run=anyone)
    def change(self, pick: int, what: Any, text: str, run: str) -> None:
        more = {"content": f"{text}, edited"} if what is wire.Edit else {}
        self.ask(what(target=self.some_id(pick), **more), run)

    @rule(pick=picks)
    def forget(self, pick: int) -> None:
        chosen = self.some_id(pick)
        self.ask(wire.Forget(ids=[chosen]))
        assert chosen not in self.world.store.percepts and chosen not in self.world.store.archive

    @rule(run=runs, text=texts)
    def use(self, run: str, text: str) -> None:
        self.ask(wire.Get(query=text), run)

    @rule(name=st.sampled_from(["two", "three", "four"]), into=st.sampled_from(["two", "three", "four"]))
    def move_a_session(self, name: str, into: str) -> None:
        there = into in self.world.store.sessions()
        self.ask(wire.MergeSession(source=name, into=into) if there else wire.RenameSession(old=name, new=into))

    @rule(text=texts)
    def record_elsewhere(self, text: str) -> None:
        self.ask(wire.Record(session="three", content=text, subject="style"))

    @rule(seconds=st.sampled_from([1.0, 4.0, CHECKPOINT_S - 1.0]), times=st.integers(1, 4))
    def time_passes(self, seconds: float, times: int) -> None:
        """Checkpoints come in time; what passed since the last one is what a crash costs."""
        self.last = None
        for _ in range(times):
            now = self.world.store.clocks.reading(GLOBAL)
            if now + seconds - self.kept["clocks"].get(GLOBAL, 0.0) > CHECKPOINT_S:
                self.world.apply(Checkpoint())
            self.world.advance(seconds)

    @rule(minutes=st.sampled_from([30.0, 61.0, 50.0 * 60]))
    def a_long_time_passes(self, minutes: float) -> None:
        """Silence ends runs, percepts fade, and are pruned by the passes of those who leave."""
        self.last = None
        for run in RUNS:
            self.ask(wire.Get(query="anything"), run)
        self.world.advance(minutes * 60)
        self.world.apply(Checkpoint())

    # ------------------------------------------------------------ files

    @rule()
    def files(self) -> None:
        """A set of files: in it each id stands once, and it alone is enough to start from."""
        self.last = None
        cut = picture(self.world.store)
        assert not self.world.files().error
        assert not differences(cut, picture(self.world.store)), "writing them changes nothing"
        self.kept = cut
        self.unwritten = False
        self.check_files()

    def check_files(self) -> None:
        memory, store = self.world.memory, self.world.store
        where = in_files(memory)
        everywhere = [percept_id for ids in where.values() for percept_id in ids]
        assert sorted(everywhere) == sorted([*store.percepts, *store.archive]), "each in exactly one place"
        for name, ids in where.items():
            if name not in ("archive", "state"):
                for edge in json.loads((memory / f"{name}.json").read_bytes())["edges"]:
                    assert {edge["from"], edge["to"]} <= ids | where.get(GLOBAL, set()), "an edge lacks an end"
        assert not list(memory.glob(".*")), "nothing half written"

    @rule()
    def the_files_alone(self) -> None:
        self.files()
        alone = Kept(without_journal(self.world.home.root, self.folder / "alone"), after=self.world)
        assert not differences(picture(alone.store), self.kept)
        alone.die()
        shutil.rmtree(self.folder / "alone")

    @rule(step=st.integers(0, 60), how=st.sampled_from(["once", "for good", "power cut", "power cut"]))
    def files_that_fail(self, step: int, how: How) -> None:
        """A step of writing them fails; if that is the power, the set is wholly old or wholly new."""
        self.last = None
        before, cut = self.kept, picture(self.world.store)
        self.disk.begin(step, how)
        ended = True
        with suppress(PowerCut):
            ended = self.world.files().error is None
        failed = self.disk.mend(self.world.memory)
        if failed and how == "power cut":
            self.start_again(before, cut)
        elif ended:
            self.kept = cut
        else:
            assert not differences(picture(self.world.store), cut), "in memory nothing is lost"
            self.start_again(before, cut)

    # ------------------------------------------------------------ ends

    def start_again(self, *expected: Picture) -> None:
        """Another daemon on the folder: it must find one of these. An edit that the journal has is told of again."""
        world = self.world.again()
        found = picture(world.store)
        assert any(not differences(found, one) for one in expected), [differences(one, found) for one in expected]
        assert self.unwritten or not world.loaded.problems, world.loaded.problems
        self.take_over(world)
        self.check_the_store()

    @rule()
    def crash(self) -> None:
        known = picture(self.world.store)
        check_loss(self.kept, known)
        last = self.last
        self.start_again(self.kept)
        if last is not None:
            self.ask_again(*last)

    def ask_again(self, request: wire.Ask, run: str, answer: Any) -> None:
        """Whoever did not hear the answer asks again: it acts once, and is told the same."""
        before = self.kept
        again = self.world.ask(request, run)
        after = picture(self.world.store)
        for table in ("living", "archive", "edges", "engrams", "forgotten"):
            assert not differences({table: before[table]}, {table: after[table]}), "it acted once"
        assert type(again) is type(answer)
        if isinstance(answer, wire.Recorded | wire.Changed):
            assert again.percept.id == answer.percept.id
        if isinstance(answer, wire.Forgotten):
            assert again == answer

    @rule()
    def stop(self) -> None:
        """A clean stop loses nothing, not even of the clocks (M7)."""
        self.last = None
        self.world.apply(Checkpoint())
        known = picture(self.world.store)
        self.files()
        assert not differences(self.kept, known)
        self.start_again(known)

    @rule(text=texts, run=anyone, pick=picks, what=st.sampled_from(["record", "forget", "turn"]), cut=cuts, junk=cuts)
    def crash_while_it_is_written(self, text: str, run: str, pick: int, what: str, cut: float, junk: float) -> None:
        """Of the last record a part reached the disk: nobody had an answer, and it is there whole or not at all."""
        journal = self.world.keeper.journal
        self.world.apply(Checkpoint())
        before, begin = self.kept, journal.end
        requests: dict[str, Callable[[], Any]] = {
            "record": lambda: self.ask(wire.Record(session="one", content=f"{text} by night"), run),
            "forget": lambda: self.ask(wire.Forget(ids=[self.some_id(pick)])),
            "turn": lambda: self.ask(wire.Turn(), run or "a"),
        }
        requests[what]()
        self.last = None
        after, end = self.kept, journal.end
        whole = journal.path.read_bytes()
        torn = begin + round(cut * (end - begin))
        rest = bytes([0xA5]) * int(junk * (end - torn)) if junk > 0.5 else b""
        data = (whole[:torn] + rest).ljust(len(whole), b"\0")
        journal.path.write_bytes(data)
        number = len(scan(whole).records)
        done = data[:end] == whole[:end]
        assert done or len(scan(data).records) < number
        self.start_again(after if done else before)

    @rule(step=st.integers(0, 3), text=texts, run=anyone, pick=picks, forget=st.booleans())
    def no_room_for_it(self, step: int, text: str, run: str, pick: int, forget: bool) -> None:
        """The disk is full: the change is refused, and has left no trace, neither now nor after a crash."""
        store = self.world.store
        before = picture(store)
        request = wire.Forget(ids=[self.some_id(pick)]) if forget else wire.Record(session="one", content=text)
        self.disk.begin(step, "once")
        refused = False
        try:
            self.ask(request, "" if forget else run)
        except OSError:
            refused = True
        self.disk.mend(self.world.memory)
        self.last = None
        if refused:
            after = picture(store)
            for table in ("living", "archive", "edges", "engrams", "outcomes", "forgotten", "event"):
                assert not differences({table: before[table]}, {table: after[table]})

    # ------------------------------------------------------------ edits by hand

    def edited(self, scope: str, what: str, pick: int, text: str) -> tuple[Callable[[Picture], None], str] | None:
        """Change a file as a person does. What must become of a picture by it, and the id that it is about."""
        path = self.world.memory / f"{scope}.json"
        if not path.exists():
            return None
        read: File = json.loads(path.read_bytes())
        percepts = read["percepts"]
        if what == "add":
            added = percept(0x90000000 + next(self.own), f"{text} by hand")
            percepts.append(added)
            path.write_text(json.dumps(read, ensure_ascii=False))
            return lambda _: None, added["id"]
        if not percepts:
            return None
        chosen = percepts[pick % len(percepts)]
        percept_id = chosen["id"]
        if what == "content":
            chosen["content"] = f"{text} by hand"
        elif what == "w":
            chosen["w"] = 0.5
        else:
            percepts.remove(chosen)

        def expect(known: Picture) -> None:
            if what == "drop":
                del known["living"][percept_id]
                for key in [key for key in known["edges"] if percept_id in key]:
                    del known["edges"][key]
            else:
                told = known["living"][percept_id]
                told[what] = chosen[what]
                if what == "w":  # as of the clock that stands in the file (M3)
                    told["w"] = aged(told, known["clocks"].get(scope, 0.0) - read["milkd"]["clock_s"])

        path.write_text(json.dumps(read, ensure_ascii=False))
        return expect, percept_id

    @rule(
        scope=st.sampled_from([GLOBAL, "one", "two"]),
        what=st.sampled_from(["add", "content", "w", "drop"]),
        pick=picks,
        text=texts,
    )
    def edit_while_it_is_stopped(self, scope: str, what: str, pick: int, text: str) -> None:
        """After a clean stop a file is taken in as it is."""
        self.last = None
        self.world.apply(Checkpoint())
        self.files()
        expected = picture(self.world.store)
        done = self.edited(scope, what, pick, text)
        if done is None:
            return
        expect, percept_id = done
        expect(expected)
        world = self.world.again()
        found = picture(world.store)
        if what == "add":
            told = found["living"].pop(percept_id)
            assert told["content"] == f"{text} by hand" and told["w_confirmed"] == 0.7
            clock_s = json.loads((world.memory / f"{scope}.json").read_bytes())["milkd"]["clock_s"]
            lived_s = found["clocks"].get(scope, 0.0) - clock_s
            assert math.isclose(told["w"], aged({**told, "w": 0.7}, lived_s), abs_tol=1e-9), "as of the file's clock"
        assert not differences(expected, found)
        self.take_over(world)
        assert not self.world.files().error
        self.kept = picture(world.store)

    @rule(
        scope=st.sampled_from([GLOBAL, "one", "two"]),
        what=st.sampled_from(["add", "content", "drop"]),
        pick=picks,
        text=texts,
        fresh=st.booleans(),
    )
    def edit_while_it_runs(self, scope: str, what: str, pick: int, text: str, fresh: bool) -> None:
        """Merged as a change, or refused and set aside whole; either way nothing else is lost."""
        self.last = None
        world = self.world
        if fresh:
            self.files()
        done = self.edited(scope, what, pick, text)
        if done is None:
            return
        _, percept_id = done
        data = (world.memory / f"{scope}.json").read_bytes()
        before = picture(world.store)
        edits = world.keeper.look([f"{scope}.json"], world.date, world.now.boot)
        for edit in edits:
            try:
                world.apply(edit)
            except MilkError as error:
                world.keeper.refuse(f"{scope}.json", data, world.date, error.message)
                edits = []
        after = picture(world.store)
        mine = {percept_id}
        assert {**after["living"], **after["archive"]}.keys() | mine == {
            **before["living"],
            **before["archive"],
        }.keys() | mine
        if edits and what != "drop" and f"forgotten:{percept_id}" not in world.store.meta:
            assert after["living"][percept_id]["content"] == f"{text} by hand"
        if (
            edits and what == "drop" and not self.unwritten
        ):  # what an edit had added since is in no base to drop it from
            assert percept_id not in after["living"]
        if not edits:
            assert not differences(before, after)
            self.files()  # at once, as the daemon does: else a crash lets the refused file in
        self.unwritten = bool(edits)

    @rule(
        scope=st.sampled_from([GLOBAL, "one", "two"]), what=st.sampled_from(["content", "drop"]), pick=picks, text=texts
    )
    def edit_after_a_crash(self, scope: str, what: str, pick: int, text: str) -> None:
        """What the crash had left to be written goes first; the edited file is kept aside if there was any."""
        self.last = None
        known, behind = self.kept, self.world.keeper.journal.next_number
        state = json.loads((self.world.memory / "state.json").read_bytes()) if self.has_files() else {}
        if self.edited(scope, what, pick, text) is None:
            return
        data = (self.world.memory / f"{scope}.json").read_bytes()
        world = self.world.again()
        if state.get("journal", 0) < behind - 1:
            forgotten = [key.removeprefix("forgotten:") for key in known["forgotten"]]
            assert scrubbed(data, forgotten) in world.aside().values()
        self.take_over(world)
        self.unwritten = True
        self.check_the_store()

    def has_files(self) -> bool:
        return (self.world.memory / "state.json").exists()

    # ------------------------------------------------------------ what holds always

    @invariant()
    def the_store_is_whole(self) -> None:
        if hasattr(self, "world"):
            self.check_the_store()

    def check_the_store(self) -> None:
        store = self.world.store
        check_invariants(store)
        forgotten = {key.removeprefix("forgotten:") for key in store.meta if key.startswith("forgotten:")}
        assert not forgotten & {*store.percepts, *store.archive}, "what was forgotten does not come back"


Restarts.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestRestarts = Restarts.TestCase
