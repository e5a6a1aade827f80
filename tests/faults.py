"""A disk that fails: the steps that writing takes of the operating system, one of which does not happen."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from milkd import snapshot

How = Literal["once", "for good", "power cut"]
FULL, BROKEN = errno.ENOSPC, errno.EIO


def broken(*_: object) -> Any:
    """Any step of a disk that is broken."""
    raise OSError(BROKEN, os.strerror(BROKEN))


class PowerCut(BaseException):
    """Nothing more happens, not even the tidying up."""


class Disk:
    """Counts steps and lets one fail, or that and all after it. Syncs cost nothing: what they promise is kept."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.fails_at = -1
        self.how: How = "once"
        self.error = FULL
        self._names: dict[int, str] = {}
        self._unsynced: set[int] = set()
        self._synced_once: set[int] = set()
        for name in ("replace", "unlink"):
            patch.setattr(os, name, self._step_of(name, getattr(os, name)))
        patch.setattr(snapshot, "_exchange", self._step_of("exchange", snapshot._exchange))
        patch.setattr(os, "open", self._opened(os.open))
        patch.setattr(os, "fdopen", self._file(os.fdopen))
        patch.setattr(os, "pwrite", self._written(os.pwrite))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._synced)

    def begin(self, fails_at: int, how: How, error: int = FULL) -> None:
        """From now on steps are counted, and the one of this number fails."""
        self.steps.clear()
        self.fails_at, self.how, self.error = fails_at, how, error

    def mend(self, folder: Path) -> bool:
        """No more faults; returns whether there was one. After a power cut, what was not synced is lost."""
        failed = 0 <= self.fails_at < len(self.steps)
        self.fails_at = -1
        if failed and self.how == "power cut":
            for path in folder.rglob("*"):
                if path.is_file() and path.stat().st_ino in self._unsynced:
                    os.truncate(path, 0)
        return failed

    def _step(self, kind: str, name: str) -> None:
        number = len(self.steps)
        self.steps.append(f"{kind} {name}")
        if self.fails_at < 0 or number < self.fails_at or (self.how == "once" and number > self.fails_at):
            return
        raise PowerCut if self.how == "power cut" else OSError(self.error, os.strerror(self.error))

    def _step_of(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*paths: Any, **more: Any) -> Any:
            self._step(kind, Path(paths[-1]).name)
            return real(*paths, **more)

        return call

    def _opened(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, *args: Any, **more: Any) -> int:
            self._step("open", Path(path).name)
            descriptor = real(path, *args, **more)
            self._names[descriptor] = Path(path).name
            if args and args[0] & os.O_TRUNC:
                self._synced_once.discard(os.fstat(descriptor).st_ino)
            return descriptor

        return opened

    def _synced(self, descriptor: int) -> None:
        self._step("sync", self._names.get(descriptor, ""))
        self._unsynced.discard(os.fstat(descriptor).st_ino)
        self._synced_once.add(os.fstat(descriptor).st_ino)

    def _written(self, real: Callable[..., int]) -> Callable[..., int]:
        def write(descriptor: int, data: bytes, offset: int) -> int:
            if os.fstat(descriptor).st_ino not in self._synced_once:  # else what it held before stays
                self._unsynced.add(os.fstat(descriptor).st_ino)
            self._step("write", self._names.get(descriptor, ""))
            return real(descriptor, data, offset)

        return write

    def _file(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(descriptor: int, *args: Any, **more: Any) -> Any:
            file = real(descriptor, *args, **more)
            self._unsynced.add(os.fstat(descriptor).st_ino)
            return _Torn(file, lambda: self._step("write", self._names.get(descriptor, "")))

        return opened


class _Torn:
    """An open file; of what is written when a step fails, half arrives."""

    def __init__(self, file: Any, step: Callable[[], None]) -> None:
        self._file = file
        self._step = step

    def __enter__(self) -> _Torn:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> None:
        try:
            self._step()
        except BaseException:
            self._file.write(data[: len(data) // 2])
            raise
        self._file.write(data)
