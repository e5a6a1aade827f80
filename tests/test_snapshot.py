"""Writing the set of files, interrupted at each step that it takes of the operating system (M3, M7, M16.7)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import BROKEN, FULL, Disk, How, PowerCut, broken
from kept import DATE, Kept, furnished, in_files, view, without_journal
from milk_client import wire

from milkd import snapshot


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def promotes(world: Kept) -> None:
    """A percept becomes global, another is archived, one is new, a session has another name."""
    world.advance(600.0)
    assert world.turn("r").promoted == 1
    keys = next(i for i, held in world.store.percepts.items() if held.record.content == "Keys hang by the door")
    world.say("r", "Keys hang by the window", replaces=keys)
    world.say("r", "Milk comes on Mondays")
    world.ask(wire.RenameSession(old="t", new="u"))


def restores(world: Kept) -> None:
    """What was archived lives again, and a percept becomes global."""
    world.advance(600.0)
    (gone,) = world.store.archive
    world.ask(wire.Restore(target=gone))
    assert world.turn("r").promoted == 1


Change = Callable[[Kept], None]


def each_step(disk: Disk, base: Path, change: Change, how: How, error: int = FULL) -> Iterator[tuple[Kept, Any, Any]]:
    """A world for each step of writing a set, in which that step has failed; what it knew before, and knows."""
    for number in itertools.count():
        world = furnished(base / f"{number}")
        old = view(world.store)
        change(world)
        new = view(world.store)
        disk.begin(number, how, error)
        try:
            failed = world.files().error
        except PowerCut:
            failed = None
        if not disk.mend(world.memory):
            return
        assert how == "power cut" or bool(failed) == ("files" in world.keeper.health)
        check_readers(world, old, new)
        yield world, old, new


def check_readers(world: Kept, old: Any, new: Any) -> None:
    """Whoever reads the files now finds them whole, and each percept that was and is known in one of them."""
    before, now = ({*known["living"], *known["archive"]} for known in (old, new))
    assert before & now <= set().union(*in_files(world.memory).values())


@pytest.mark.parametrize(("change", "exchange"), [(promotes, True), (restores, True), (promotes, False)])
def test_a_power_cut_at_any_step_leaves_the_set_wholly_old_or_wholly_new_m3(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(snapshot, "_LIBC", None)
    ends = []
    for number, (world, old, new) in enumerate(each_step(disk, tmp_path, change, "power cut")):
        alone = Kept(without_journal(world.home.root, tmp_path / f"alone {number}"), after=world)
        ends.append(view(alone.store))
        assert ends[-1] in (old, new), "the set alone"
        assert not alone.loaded.problems and not list(alone.memory.glob(".*"))
        again = world.again()
        assert view(again.store) == new, "what was answered is there"
        assert not again.loaded.problems
        assert not again.files().error and not list(again.memory.glob(".*"))
    assert ends[0] != ends[-1] and ends == sorted(ends, key=lambda end: end == ends[-1]), "old, then new for good"
    assert len(ends) > 40


@pytest.mark.parametrize(
    ("change", "how", "error"), [(promotes, "once", FULL), (promotes, "for good", BROKEN), (restores, "once", BROKEN)]
)
def test_after_a_fault_at_any_step_nothing_is_lost_and_the_next_set_is_whole_m7(
    disk: Disk, tmp_path: Path, change: Change, how: How, error: int
) -> None:
    for number, (world, old, new) in enumerate(each_step(disk, tmp_path, change, how, error)):
        alone = Kept(without_journal(world.home.root, tmp_path / f"alone {number}"), after=world)
        assert view(alone.store) in (old, new), "were it to die now"
        assert view(world.store) == new
        world.say("r", "Bread comes on Tuesdays")
        newer = view(world.store)
        assert not world.files().error
        assert not world.keeper.health, "all is well again"
        assert not world.aside(), "a fault of the disk is no edit by hand"
        assert not [*world.memory.glob(".*"), *world.memory.glob("*.new")], "and nothing half written lies about"
        check_readers(world, newer, newer)
        alone = Kept(without_journal(world.home.root, tmp_path / f"later {number}"), after=world)
        assert view(alone.store) == view(world.again().store) == newer


def edited(path: Path, old: str, new: str) -> None:
    """Change a word in a file, as an editor saves it."""
    fresh = path.with_name("editor~")
    fresh.write_text(path.read_text().replace(old, new))
    fresh.rename(path)


@pytest.mark.parametrize("fails", [False, True])
def test_an_edit_that_lands_just_before_its_file_is_renamed_is_taken_in_m3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    world = furnished(tmp_path / "home")
    world.say("r", "Bread comes on Tuesdays")
    real, path = snapshot._exchange, world.memory / "s.json"

    def exchange(one: Path, other: Path) -> bool:
        if other == path:
            edited(path, "Backups run at noon", "Backups run at midnight")
        elif fails:
            broken()
        return real(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "_exchange", exchange)
        assert bool(world.files().error) == fails
    assert not world.files().error
    wanted = {"Backups run at midnight", "Bread comes on Tuesdays"}
    for kept in (world, world.again()):
        assert wanted <= {held.record.content for held in kept.store.percepts.values()}
    assert not world.files().error
    assert all(content in path.read_text() for content in wanted)


def test_what_failed_beside_a_linked_file_is_tidied_up_too(disk: Disk, tmp_path: Path) -> None:
    world = furnished(tmp_path / "home")
    away = tmp_path / "dotfiles"
    away.mkdir()
    path = world.memory / "s.json"
    path.rename(away / "shared.json")
    path.symlink_to(away / "shared.json")
    left = []
    for number in itertools.count():
        world.ask(wire.Edit(target="00000002", content=f"Bread number {number} is eaten"))
        disk.begin(number, "for good")
        world.files()
        if not disk.mend(world.memory):
            break
        left += away.glob(".*")
        assert not world.files().error and not list(away.glob(".*"))
    assert left and path.is_symlink() and f"Bread number {number} " in (away / "shared.json").read_text()


@pytest.mark.parametrize("fails", [False, True])
def test_a_set_that_is_wanted_while_one_is_written_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    world = Kept(tmp_path, writer=True)
    keeper, boot = world.keeper, world.now.boot
    real = keeper.files.write

    def write(cut: snapshot.Cut) -> snapshot.Written:
        if fails and cut.generation == 1:
            broken()
        return real(cut)

    monkeypatch.setattr(keeper.files, "write", write)
    assert keeper.want_files(boot) == 0, "nothing to write"
    world.ask(wire.Record(session="s", content="Tea is at four"))
    assert keeper.want_files(boot) == 1
    world.ask(wire.Record(session="s", content="Bread comes on Tuesdays"))
    assert keeper.want_files(boot) == 2, "what is asked for now is in the next one"
    keeper.done(world.box.get(timeout=20), DATE, boot)
    if fails:
        assert "files" in keeper.health and keeper.want_files(boot) == 2, "it waits until somebody asks again"
    keeper.done(world.box.get(timeout=20), DATE, boot)
    assert keeper.want_files(boot) == 0 and not keeper.health
    assert {p["content"] for p in json.loads((world.memory / "s.json").read_bytes())["percepts"]} == {
        "Tea is at four",
        "Bread comes on Tuesdays",
    }
    keeper.end_writer()


def test_the_folder_is_synced_before_the_first_and_after_the_last_file_is_put_in_place(
    disk: Disk, tmp_path: Path
) -> None:
    world = furnished(tmp_path)
    promotes(world)
    disk.begin(-1, "once")
    assert not world.files().error
    told = {"replace .set.json": "mark", "unlink .set.json": "unmark", "sync memory": "sync", "unlink t.json": "place"}
    seen = ["place" if step.startswith("exchange") else told.get(step, "") for step in disk.steps]
    assert [kind for kind, _ in itertools.groupby(filter(None, seen))][:6] == [
        "mark",
        "sync",
        "place",
        "sync",
        "unmark",
        "sync",
    ]
