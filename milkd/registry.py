"""One table of every file that milkd writes under a home: `forget` walks it, and nothing else writes there.

memory/global.json, <session>.json, archive.json, state.json   the set (snapshot)
memory/.<name>.<generation>.tmp, .set.json                     a set being written
memory/journal, journal.new                                    effects since the set
memory/aside/…                                                 what could not be read, or was not milkd's
memory/before-milkd-<date>/…                                   a home of another program, as it was found
memory/….sync-conflict-…, …conflicted copy…                    not ours, but copies of ours: `forget` reaches them
run/lock, milkd.sock, events.sock, endpoint, milkd.log         no content ever
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from milkd.journal import sync_folder
from milkd.scrubbing import cleaned

ASIDE = "aside"
BEFORE = "before-milkd-"
SET_MARK = ".set.json"
OWN_NAMES = frozenset({"global", "archive", "state"})
_CONFLICTED = re.compile(r"\.sync-conflict-\d{8}|conflicted copy|\(.*conflict.*\)", re.IGNORECASE)
"""How Syncthing, Dropbox, Nextcloud and others name the copy of a file that two machines changed."""


def write_file(path: Path, pieces: Iterable[bytes], seen: Callable[[bytes], None] = lambda _: None) -> int:
    """Write a file whole beside nobody's eyes: made anew with mode 0600 and synced. Returns its bytes.

    ``seen`` is given each piece as it is written. Raises OSError, with no half file left.
    """
    size = 0
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 16) as file:
            for piece in pieces:
                file.write(piece)
                seen(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return size


def replace_file(path: Path, data: bytes) -> None:
    """Put a file in place in one step: temporary in the same folder, sync, rename, sync the folder."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_file(temporary, [data])
    os.replace(temporary, path)
    sync_folder(path.parent)


def set_aside(memory: Path, name: str, data: bytes, date: str) -> Path:
    """Keep bytes that could not be taken in, under a dated name that nothing else has. Returns where."""
    folder = memory / ASIDE
    folder.mkdir(mode=0o700, exist_ok=True)
    stem = f"{date}-{name}"
    path = folder / stem
    number = 1
    while path.exists():
        if path.read_bytes() == data:
            return path
        number += 1
        path = folder / f"{stem}.{number}"
    replace_file(path, data)
    return path


def is_conflicted_copy(name: str) -> bool:
    """Whether a synchronising program left this file because two machines had changed it."""
    return bool(_CONFLICTED.search(name))


def conflicted_copies(memory: Path) -> list[Path]:
    """Those copies under ``memory``: never read, but `forget` reaches them."""
    return sorted(path for path in memory.iterdir() if path.is_file() and is_conflicted_copy(path.name))


def keepsakes(memory: Path) -> list[Path]:
    """Files that hold content and are not part of the set or the journal: copies and what was set aside."""
    folders = [memory / ASIDE, *memory.glob(f"{BEFORE}*")]
    return sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file())


def lying_about(memory: Path) -> list[str]:
    """Sentences about files that lie beside ours: set aside, or left by a synchronising program."""
    told = []
    if copies := conflicted_copies(memory):
        names = ", ".join(path.name for path in copies)
        told.append(f"copies of another program lie beside the files and are not read: {names}")
    if kept := keepsakes(memory):
        told.append(f"{len(kept)} file(s) are set aside under memory/")
    return told


def sizes(memory: Path) -> dict[str, int]:
    """Each file under ``memory`` with its bytes, for `status`."""
    found = {}
    for path in sorted(memory.rglob("*")):
        try:
            if path.is_file():
                found[str(path.relative_to(memory))] = path.stat().st_size
        except FileNotFoundError:
            continue  # a temporary that has just been renamed
    return found


# ---------------------------------------------------------------- forgetting


def scrub(memory: Path, ids: Iterable[str], contents: Iterable[str]) -> int:
    """Remove percepts from every keepsake and conflicted copy (M20); returns how many files changed."""
    wanted, texts = set(ids), set(contents)
    changed = 0
    for path in [*keepsakes(memory), *conflicted_copies(memory)]:
        data = path.read_bytes()
        clean = cleaned(path.name, data, wanted, texts)
        if clean != data:
            replace_file(path, clean)
            changed += 1
    return changed
