"""The machine around the daemon: folders, the lock, the endpoint file, sd_notify, signals."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from milk_client import wire
from milk_client.paths import Endpoint, Home, this_boot, this_host, this_pid_namespace

from milkd.registry import replace_file

DESCRIPTORS = 65_536
"""Descriptors that the daemon asks for; a connection takes one."""


class Unusable(Exception):
    """The home cannot be used as it is; the message says why and what to do."""


class AlreadyRunning(Exception):
    """Another daemon holds the home's lock."""


def prepare(home: Home) -> None:
    """Make the folders of a home, private to the user. Raises Unusable for one that is not to be trusted."""
    os.umask(0o077)
    for folder in (home.root, home.memory, home.run, home.sockets):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unusable(f"{folder} cannot be made: {error.strerror}") from None
        found = folder.lstat()
        if folder != home.root and not stat.S_ISDIR(found.st_mode):
            raise Unusable(f"{folder} is not a folder (a link?); move it away")
        if found.st_uid != os.getuid():
            raise Unusable(f"{folder} belongs to another user; milkd keeps memory only in its user's own home")
        if folder != home.root and found.st_mode & 0o077:
            folder.chmod(0o700)
    if not os.access(home.memory, os.W_OK | os.X_OK):
        raise Unusable(f"{home.memory} cannot be written")


def raise_descriptor_limit() -> None:
    """Have as many connections as the system allows: libzmq aborts a process that has no room for one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):  # what macOS allows may be less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Lock:
    """One daemon a home: kernel locks, gone with their process however it ends.

    The lock on the folder of the memory is what guards it: it goes where the folder goes. The file `run/lock`
    tells others, and who holds it.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._file = -1
        self._folder = -1

    def take(self) -> None:
        """Take the locks of a prepared home. Raises AlreadyRunning, naming the holder's pid."""
        self._folder = _locked(os.open(self._home.memory, os.O_RDONLY | os.O_DIRECTORY))
        if self._folder >= 0:
            self._take_file()
        if self._folder < 0 or self._file < 0:
            self.release()
            raise AlreadyRunning(f"milkd runs on this home already (pid {self._holder() or 'unknown'})")

    def check_place(self) -> None:
        """Raise OSError where the home is gone, or another stands in its place: nothing may be written there."""
        if _identity(self._home.memory) != _same(os.fstat(self._folder)):
            raise OSError(errno.ESTALE, "it was moved or removed", str(self._home.root))

    def check(self) -> None:
        """As `check_place`; besides, a lock file that was removed is made and locked anew."""
        self.check_place()
        if self._file < 0 or _identity(self._home.lock) != _same(os.fstat(self._file)):
            self._home.run.mkdir(mode=0o700, exist_ok=True)
            self._take_file()

    def release(self) -> None:
        """Let go; the file stays, for a lock on a removed file guards nothing."""
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1

    def _take_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = _locked(os.open(self._home.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> str:
        try:
            return self._home.lock.read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""


def _locked(descriptor: int) -> int:
    """The descriptor, locked; -1, and closed, where somebody else has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def _same(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that took its place; None = nothing is there."""
    try:
        return _same(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_endpoint(home: Home, version: str) -> None:
    """Say where the daemon listens, on which host and boot (interface: Home)."""
    told = Endpoint(
        endpoint=f"ipc://{home.socket}",
        events=f"ipc://{home.events}",
        pid=os.getpid(),
        host=this_host(),
        boot_id=this_boot(),
        version=version,
        protocol=wire.PROTOCOL,
        pid_ns=this_pid_namespace(),
    )
    replace_file(home.endpoint, msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")


def notify(message: str) -> None:
    """Tell the service manager (sd_notify), where there is one; one that does not listen is no reason to stop."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer, contextlib.suppress(OSError):
        peer.setblocking(False)
        peer.connect("\0" + address[1:] if address.startswith("@") else address)
        peer.send(message.encode())


class Mailbox:
    """What other threads and signals hand to the core: a queue, and a descriptor that wakes its poll."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Readable when something may wait."""
        return self._woken.fileno()

    def post(self, item: Any) -> None:
        """Hand something over, from any thread."""
        self._waiting.append(item)
        try:
            self._wake.send(b"!")
        except BlockingIOError:
            return  # full of wake-ups: it will wake

    def take(self) -> list[Any]:
        """All that waits, in order."""
        try:
            while self._woken.recv(4096):
                continue
        except BlockingIOError:
            pass
        found = []
        while self._waiting:
            found.append(self._waiting.popleft())
        return found

    def close(self) -> None:
        """Nothing more is handed over."""
        self._wake.close()
        self._woken.close()


class Signals:
    """SIGTERM and SIGINT stop, SIGHUP reloads; the handlers that were there come back on exit."""

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        self._actions = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in self._actions:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._actions[signal.Signals(number)]()
