"""The journal: what was appended is there, whatever the end or the middle of the file looks like (M7)."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from faults import Disk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milkd import journal as module
from milkd.cells import Effect
from milkd.journal import Journal, JournalTooNew, scan

effects = st.lists(
    st.tuples(st.just("meta"), st.text(max_size=8), st.one_of(st.none(), st.floats(0, 1e9))), min_size=1, max_size=4
)
batches = st.lists(effects, min_size=1, max_size=6)
fresh_folder = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests ask what is in the file, not whether the platter has it: thousands of syncs take minutes."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(module.os, name, lambda descriptor: os.fstat(descriptor) and None)


def written(path: Path, groups: list[list[Effect]]) -> tuple[bytes, list[int]]:
    """A journal with those batches: its bytes, and where each record ends."""
    path.unlink(missing_ok=True)
    journal = Journal(path)
    journal.read()
    ends = []
    for group in groups:
        journal.append(group)
        ends.append(journal.end)
    journal.close()
    return path.read_bytes(), ends


def found(data: bytes) -> list[list[Effect]]:
    return [group for _, group in scan(data).records]


@fresh_folder
@given(batches)
def test_what_was_appended_is_read_in_order(tmp_path: Path, groups: list[list[Effect]]) -> None:
    written(tmp_path / "journal", groups)
    journal = Journal(tmp_path / "journal")
    replayed = journal.read()
    assert [group for _, group in replayed.records] == groups
    assert [number for number, _ in replayed.records] == list(range(1, len(groups) + 1))
    assert not replayed.problem
    journal.append([("meta", "later", 1.0)])
    journal.close()
    assert found((tmp_path / "journal").read_bytes()) == [*groups, [("meta", "later", 1.0)]]


@fresh_folder
@given(batches, st.data())
def test_a_torn_end_loses_only_what_was_not_answered(tmp_path: Path, groups: list[list[Effect]], data: Any) -> None:
    """Cut off, or zeros from anywhere on: the whole records before it are there and nothing is called damaged."""
    whole, ends = written(tmp_path / "journal", groups)
    cut = data.draw(st.integers(0, ends[-1]))
    for torn in (whole[:cut], whole[:cut] + b"\0" * (len(whole) - cut)):
        # A record that ends in zeros is whole when zeros are what was torn off.
        expected = [group for group, end in zip(groups, ends, strict=True) if torn[:end] == whole[:end]]
        replayed = scan(torn)
        assert [group for _, group in replayed.records] == expected
        if cut >= 16:
            assert not replayed.problem


@pytest.mark.parametrize("left", [b"", b"MILK", bytes(16), bytes(1 << 20)])
def test_one_that_a_crash_left_without_a_header_is_begun_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "journal").write_bytes(left)
    journal = Journal(tmp_path / "journal")
    assert not journal.read().problem
    journal.append([("meta", "one", 1.0)])
    journal.close()
    replayed = scan((tmp_path / "journal").read_bytes())
    assert [group for _, group in replayed.records] == [[("meta", "one", 1.0)]] and not replayed.problem


@fresh_folder
@given(batches, st.data())
def test_damage_costs_one_record_and_is_told(tmp_path: Path, groups: list[list[Effect]], data: Any) -> None:
    whole, ends = written(tmp_path / "journal", groups)
    at = data.draw(st.integers(16, ends[-1] - 1))
    damaged = whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :]
    hit = next(n for n, end in enumerate(ends) if at < end)
    replayed = scan(damaged)
    assert [group for _, group in replayed.records] == groups[:hit] + groups[hit + 1 :]
    if hit < len(groups) - 1:
        assert "damaged" in replayed.problem


@fresh_folder
@given(batches, st.integers(0, 7))
def test_compaction_keeps_what_no_snapshot_covers(tmp_path: Path, groups: list[list[Effect]], covered: int) -> None:
    written(tmp_path / "journal", groups)
    journal = Journal(tmp_path / "journal")
    journal.read()
    journal.append([("meta", "last", 2.0)])
    journal.compact(covered)
    journal.append([("meta", "after", 3.0)])
    journal.compact(covered)
    journal.close()
    expected = [*groups, [("meta", "last", 2.0)], [("meta", "after", 3.0)]][covered:]
    assert found((tmp_path / "journal").read_bytes()) == expected[-len(expected) or None :]
    again = Journal(tmp_path / "journal")
    again.read()
    assert again.next_number == len(groups) + 3 or not expected
    again.close()


@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_a_failed_append_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    journal = Journal(tmp_path / "journal")
    journal.read()
    journal.append([("meta", "one", 1.0)])
    real = getattr(os, name)
    failing = [True]

    def call(*args: Any) -> Any:
        if failing:
            failing.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(module.os, name, call)
    with pytest.raises(OSError, match="No space"):
        journal.append([("meta", "lost", 2.0)])
    journal.append([("meta", "two", 3.0)])
    journal.close()
    assert found((tmp_path / "journal").read_bytes()) == [[("meta", "one", 1.0)], [("meta", "two", 3.0)]]


def test_a_failed_compaction_leaves_the_old_journal_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal")
    journal.read()
    journal.append([("meta", "one", 1.0)])

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", refuse)
        with pytest.raises(OSError, match="broken"):
            journal.compact(1)
    journal.append([("meta", "two", 2.0)])
    journal.close()
    assert found((tmp_path / "journal").read_bytes()) == [[("meta", "one", 1.0)], [("meta", "two", 2.0)]]


def test_whatever_step_of_a_compaction_fails_what_is_appended_afterwards_is_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rename, too: another file has the name by then, and an answer must not stand in the old one."""
    disk = Disk(monkeypatch)
    failed = 0
    for number in itertools.count():
        folder = tmp_path / f"{number}"
        folder.mkdir()
        journal = Journal(folder / "journal")
        journal.read()
        journal.append([("meta", "one", 1.0)])
        journal.append([("meta", "two", 2.0)])
        disk.begin(number, "once")
        try:
            journal.compact(1)
        except OSError:
            failed += 1
        if not disk.mend(folder):
            break
        disk.begin(-1, "once")
        journal.append([("meta", "three", 3.0)])
        steps = list(disk.steps)
        journal.close()
        kept = found((folder / "journal").read_bytes())
        assert kept[-2:] == [[("meta", "two", 2.0)], [("meta", "three", 3.0)]]
        assert len(kept) == 3 or steps[:1] == [f"open {number}"], "the new file's name is made durable first"
    assert failed > 8


def test_a_journal_of_a_later_version_is_not_read(tmp_path: Path) -> None:
    whole, _ = written(tmp_path / "journal", [[("meta", "one", 1.0)]])
    with pytest.raises(JournalTooNew, match="version 99"):
        scan(whole[:8] + (99).to_bytes(4, "little") + whole[12:])


def test_it_is_private_and_preallocated(tmp_path: Path) -> None:
    written(tmp_path / "journal", [[("meta", "one", 1.0)]])
    found_stat = (tmp_path / "journal").stat()
    assert found_stat.st_mode & 0o777 == 0o600
    assert found_stat.st_size >= 1 << 20
