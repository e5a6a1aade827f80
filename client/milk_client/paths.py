"""Where things lie: a home and what is in it, the endpoint file, and the session of a project.

Client and daemon meet by these rules, so both take them from here. Functions of their arguments, but for
reading links, ``.git`` files and the endpoint file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from .errors import Invalid

LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket's path without its final zero: ``sun_path`` has 104 on macOS, 108 on Linux."""

RESERVED_SESSIONS = frozenset({"global", "archive", "state"})
"""Names of milkd's own files in ``memory/`` (M3)."""

DEFAULT_SESSION = "default"
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_SESSION = 128
_LONGEST_STEM = 40


AnyPath = str | os.PathLike[str]


def _digest(path: Path) -> str:
    return sha256(os.fsencode(path)).hexdigest()[:8]


# ---------------------------------------------------------------- home


class Home(Struct, frozen=True):
    """A home and the paths in it. ``root`` is a real path, so that a link to a home is the same home."""

    root: Path
    sockets: Path
    """The directory of both sockets: ``run``, or a short one where the path would be too long."""

    @property
    def memory(self) -> Path:
        """The directory of the JSON files."""
        return self.root / "memory"

    @property
    def run(self) -> Path:
        """The directory of what exists only while the daemon runs."""
        return self.root / "run"

    @property
    def socket(self) -> Path:
        """Where the daemon takes requests."""
        return self.sockets / "milkd.sock"

    @property
    def events(self) -> Path:
        """Where the daemon publishes events."""
        return self.sockets / "events.sock"

    @property
    def lock(self) -> Path:
        """The file whose kernel lock makes one daemon a home."""
        return self.run / "lock"

    @property
    def endpoint(self) -> Path:
        """The file that says where the daemon listens (`Endpoint`)."""
        return self.run / "endpoint"

    @property
    def config(self) -> Path:
        """The config file."""
        return self.root / "milkd.toml"

    @property
    def legacy_config(self) -> Path:
        """The config of the program that made the home before milkd."""
        return self.root / "config.json"

    @property
    def log(self) -> Path:
        """Where a daemon that a client started writes its log."""
        return self.run / "milkd.log"


def home_at(root: Path, env: Mapping[str, str], *, uid: int, longest: int = LONGEST_SOCKET_PATH) -> Home:
    """The home of the real path ``root``; its sockets lie elsewhere if a path exceeds ``longest`` bytes."""
    run = root / "run"
    if len(os.fsencode(run / "events.sock")) <= longest:
        return Home(root, run)
    folder = f"milkd-{uid}-{_digest(root)}"
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        short = Path(runtime) / folder
        if len(os.fsencode(short / "events.sock")) <= longest:
            return Home(root, short)
    return Home(root, Path("/tmp") / folder)


def find_home(home: AnyPath | None, env: Mapping[str, str]) -> Home:
    """The home to use: the argument, else ``MILK_HOME``, else ``~/.milk``; need not exist.

    Raises Invalid (field ``home``) where ``~`` means nothing.
    """
    given = os.fspath(home) if home is not None else env.get("MILK_HOME", "")
    if env.get("HOME") == "" and (not given or given.startswith("~")):
        raise Invalid("No such home: HOME is empty", field="home", hint="Set MILK_HOME to a directory.")
    try:
        root = os.path.realpath(Path(given or "~/.milk").expanduser())
    except (RuntimeError, ValueError) as error:
        raise Invalid(f"No such home: {error}", field="home", hint="Set MILK_HOME to a directory.") from None
    return home_at(Path(root), env, uid=os.getuid())


# ---------------------------------------------------------------- endpoint file


class Endpoint(Struct, frozen=True, kw_only=True):
    """What the daemon writes into ``run/endpoint`` as JSON once it listens."""

    endpoint: str
    events: str
    pid: int
    host: str
    boot_id: str
    version: str
    protocol: int
    pid_ns: str = ""
    """The pid namespace (`this_pid_namespace`), so that a sandbox sees that it is not the daemon's."""


def this_host() -> str:
    """The name of this machine."""
    return os.uname().nodename


def this_boot() -> str:
    """An id of this boot of the machine; "" where the platform has none in a file."""
    return _first_line(Path("/proc/sys/kernel/random/boot_id"))


def this_pid_namespace() -> str:
    """The pid namespace of this process, as ``pid:[4026531836]``; "" where there are none."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def read_endpoint(home: Home) -> Endpoint | None:
    """The endpoint file; None where it is missing, unreadable or of another shape."""
    try:
        return msgspec.json.decode(home.endpoint.read_bytes(), type=Endpoint)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


# ---------------------------------------------------------------- sessions


def check_session(name: str) -> str:
    """The name itself if it may be a session's (M3). Raises Invalid (field ``session``)."""
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_SESSION or not _NAME_CHARS.issuperset(name):
        problem = f"must be 1 to {_LONGEST_SESSION} of the characters A-Z a-z 0-9 . _ -"
    elif name.startswith("."):
        problem = "must not start with a dot"
    elif name.casefold() in RESERVED_SESSIONS:
        problem = "is the name of one of milkd's own files"
    else:
        return name
    shown = ascii(name[:60] if isinstance(name, str) else name)
    raise Invalid(
        f"Session {shown} {problem}.",
        field="session",
        hint="Choose another session name; nothing was changed.",
    )


def derive_session(cwd: AnyPath, env: Mapping[str, str], user_home: AnyPath) -> str:
    """The session of a directory: ``MILK_SESSION``, else a name and a hash of its project's real path.

    ``/`` and the home directory belong to no project: ``default``. Raises Invalid for a bad ``MILK_SESSION``.
    """
    given = env.get("MILK_SESSION", "")
    if given:
        return check_session(given)
    project = project_of(Path(os.path.realpath(cwd)))
    if project in (Path("/"), Path(os.path.realpath(user_home))):
        return DEFAULT_SESSION
    name = project.name.removesuffix(".git") or project.name
    stem = "".join(char if char in _NAME_CHARS else "-" for char in name).lstrip(".")[:_LONGEST_STEM]
    return f"{stem or 'project'}-{_digest(project)}"


def project_of(directory: Path) -> Path:
    """The real path that stands for the project of a real directory: one for all worktrees of a repository.

    That is the folder of git's common directory (``.git``, ``.bare``); the common directory itself where it
    is a repository of its own name (bare, a submodule's); else the directory. Asks files only, never git.
    """
    for folder in (directory, *directory.parents):
        common = _common_dir(folder)
        if common is not None:
            return common.parent if common.name.startswith(".") else common
    return directory


def _common_dir(folder: Path) -> Path | None:
    """Git's common directory if ``folder`` is the top of a working tree or a git directory."""
    dot_git = folder / ".git"
    if _is_git_dir(dot_git):
        git_dir = dot_git
    elif (line := _first_line(dot_git)).startswith("gitdir:"):
        git_dir = folder / line.removeprefix("gitdir:").strip()
    elif _is_git_dir(folder):
        git_dir = folder
    else:
        return None
    shared = _first_line(git_dir / "commondir")
    if not shared and git_dir.parent.name == "worktrees":
        shared = "../.."  # the repository is not in reach from here (a container), its place is known all the same
    return Path(os.path.realpath(git_dir / shared if shared else git_dir))


def _is_git_dir(path: Path) -> bool:
    """Whether git would take it: HEAD, objects and refs, or a worktree's HEAD and commondir."""
    try:
        return (path / "HEAD").is_file() and (
            ((path / "objects").is_dir() and (path / "refs").is_dir()) or (path / "commondir").is_file()
        )
    except OSError:
        return False


def _first_line(path: Path) -> str:
    """The first line of a small text file; "" where it cannot be read."""
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.readline(8192)).strip()
    except OSError:
        return ""
