"""A full disk: changes are refused and taken back, reads go on, and it goes on by itself when there is space."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from milk_client import Milk, NotFound, StorageFull
from running import Daemon, until


def fact(number: int) -> str:
    """A fact of nearly the greatest length, unlike the others."""
    return f"Crate c{number} holds " + " ".join(f"part{number}x{n}" for n in range(130))


@pytest.fixture
def disk(base: Path) -> Iterator[Path]:
    """A small file system of the test's own."""
    folder = base / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "milkd-test", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def full(disk: Path, base: Path) -> Iterator[Daemon]:
    made = Daemon(disk / "home", base / "log")
    made.write_config("[memory]\nsnapshot_interval_s = 0.2\n")
    yield made
    made.finish()


def fill(disk: Path) -> None:
    """Take all the space that is left."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def record_until_full(milk: Milk) -> list[str]:
    """Record until the disk refuses; what was answered."""
    said: list[str] = []
    for n in range(3000):
        try:
            assert milk.record(fact(n)).outcome == "new"
        except StorageFull as error:
            assert error.hint and "No space" in error.message, error
            return said + squeeze(milk)
        said.append(fact(n))
    raise AssertionError("the disk never filled")


def squeeze(milk: Milk) -> list[str]:
    """Record short facts in what is left of the last block, until that is used up, too."""
    said: list[str] = []
    while True:
        content = f"Pin p{len(said)} opens lock k{len(said)}"
        try:
            milk.record(content)
        except StorageFull:
            return said
        said.append(content)


def everything(daemon: Daemon) -> list[str]:
    with daemon.tool(timeout=20) as tool:
        return sorted(percept.content for percept in tool.list())


def test_a_full_disk_refuses_changes_whole_and_milkd_goes_on_when_there_is_space(full: Daemon, disk: Path) -> None:
    full.start()
    with Milk("s", home=full.root, autostart=False, timeout=20) as milk:
        first = milk.record("The gate is blue")
        milk.flush()
        fill(disk)
        said = record_until_full(milk)
        numbers = {p.id: (p.content, p.w_confirmed, p.evidence) for p in milk.list()}
        assert sorted(content for content, _, _ in numbers.values()) == sorted(["The gate is blue", *said])
        for change in (
            lambda: milk.record("Keys hang by the door"),
            lambda: milk.record("The gate is blue"),
            lambda: milk.learn("Never commit secrets"),
            lambda: milk.edit(first, "The gate is green"),
            milk.flush,
        ):
            with pytest.raises(StorageFull):
                change()
        assert {p.id: (p.content, p.w_confirmed, p.evidence) for p in milk.list()} == numbers, "nothing half done"
        assert milk.get("colour of the gate")[0].content == "The gate is blue"
        assert "The gate is blue" in milk.inject("the gate").text
        with pytest.raises(StorageFull):
            milk.forget(first)  # is not answered as done while the disk holds it
        status = milk.status()
        assert any("No space" in line for line in status.health), status.health
        assert status.counts["faults"]["storage_full"] >= 5
        (disk / "filler").unlink()
        assert milk.record("Keys hang by the door").outcome == "new", "by itself, over the same connection"
        milk.flush()
        until(lambda: not milk.status().health, what="all is well again")
        with contextlib.suppress(NotFound):
            milk.forget(first)
    assert not [p for p in full.root.rglob("*") if p.is_file() and b"The gate is blue" in p.read_bytes()]
    wanted = sorted(["Keys hang by the door", *said])
    assert everything(full) == wanted == sorted(full.contents("s"))
    full.restart()
    assert everything(full) == wanted


def test_a_kill_on_a_full_disk_loses_nothing_that_was_answered(full: Daemon, disk: Path) -> None:
    full.start()
    with Milk("s", home=full.root, autostart=False, timeout=20) as milk:
        fill(disk)
        said = record_until_full(milk)
        full.kill()
    (disk / "filler").unlink()
    full.start()
    assert everything(full) == sorted(said)


def test_a_stop_on_a_full_disk_loses_nothing_and_says_what_is_missing(full: Daemon, disk: Path) -> None:
    full.start()
    with Milk("s", home=full.root, autostart=False, timeout=20) as milk:
        fill(disk)
        said = record_until_full(milk)
        assert full.stop() == 1, "not clean: the files do not hold everything"
    assert "No space" in full.told() and "Traceback" not in full.told()
    (disk / "filler").unlink()
    full.start()
    assert everything(full) == sorted(said)


def test_a_start_on_a_full_disk_either_serves_or_says_why_and_harms_nothing(full: Daemon, disk: Path) -> None:
    full.start()
    with Milk("s", home=full.root, autostart=False, timeout=20) as milk:
        milk.record("The gate is blue")
        fill(disk)
        said = record_until_full(milk)
    full.kill()
    status, told = full.run()
    assert status == 1 and "No space" in told and "Traceback" not in told
    (disk / "filler").unlink()
    full.start()
    assert everything(full) == sorted(["The gate is blue", *said])


def test_a_turn_on_a_full_disk_is_refused_and_done_later_and_no_agent_hangs(full: Daemon, disk: Path) -> None:
    full.start()
    with Milk("s", home=full.root, autostart=False, timeout=20) as milk:
        milk.record("The user likes rye bread", producer="user")
        milk.flush()
        fill(disk)
        record_until_full(milk)
        with pytest.raises(StorageFull):
            milk.turn()
        assert full.contents("global") == set() and "The user likes rye bread" in full.contents("s")
        (disk / "filler").unlink()
        assert milk.turn().promoted == 1
        assert full.contents("global") == {"The user likes rye bread"}
