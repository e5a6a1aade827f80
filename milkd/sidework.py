"""What the second thread does for the daemon: its jobs, and the watch over the files. It only posts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from milkd import liveness, watching
from milkd.clocks import Process
from milkd.jobs import Job, SideThread
from milkd.service import Checkpoint, ExpireArchive
from milkd.settings import Settings

LOOK_S = 60.0
"""How often all files are looked at, for what a watch could have missed (one that polls sees whole seconds only)."""
EXPIRE_S = 3600.0


class Poke(Struct, frozen=True):
    """From a job, the watch or a signal: something to do that is not a change by itself."""

    what: str
    names: tuple[str, ...] = ()
    text: str = ""


class SideWork:
    """The second thread with its work. ``post`` hands something to the core, from any thread.

    ``watched`` tells the processes to look at (M6), ``changed`` the files that are not as they were written.
    """

    def __init__(
        self,
        settings: Settings,
        post: Callable[[Any], None],
        watched: Callable[[], frozenset[Process]],
        changed: Callable[[], list[str]],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._post = post
        self._watched = watched
        self._changed = changed
        self._watches = settings.config.daemon.watch
        self._thread = SideThread(self._jobs(), self._watch, on_death)
        self.start = self._thread.start
        self.stop = self._thread.stop

    def retune(self) -> None:
        """Other intervals are in force, or another way of watching."""
        for name, seconds, _ in self._jobs():
            self._thread.reschedule(name, seconds)
        if self._settings.config.daemon.watch != self._watches:
            self._thread.watch_anew()

    def _jobs(self) -> list[Job]:
        daemon, memory = self._settings.config.daemon, self._settings.config.memory
        return [
            ("sweep", daemon.sweep_s, self._sweep),
            ("checkpoint", daemon.checkpoint_s, lambda: self._post(Checkpoint())),
            # With the files the journal is compacted: what they hold need not be replayed.
            ("snapshot", memory.snapshot_interval_s, lambda: self._post(Poke("snapshot"))),
            ("look", LOOK_S, self._look),
            ("expire archive", EXPIRE_S, lambda: self._post(ExpireArchive())),
        ]

    def _sweep(self) -> None:
        self._post(liveness.look(self._watched()))
        self._post(Poke("sweep"))

    def _look(self) -> None:
        self._post(Poke("look", tuple(self._changed())))
        self._post(Poke("config"))

    async def _watch(self, stop: asyncio.Event) -> None:
        how = self._watches = self._settings.config.daemon.watch
        if how == "off":
            self._post(Poke("health", text=""))
            await watching.off(stop)
            return
        home, named = self._settings.home, self._settings.named
        configs = [named] if named is not None else [home.config, home.legacy_config]
        configs += [path.resolve() for path in configs if path.is_symlink()]  # what a link leads to is edited there
        folders = list(dict.fromkeys([home.memory, home.root, *(path.parent for path in configs)]))

        def wanted(path: str) -> bool:
            found = Path(path)
            if found.parent == home.memory:
                return found.suffix == ".json" and not found.name.startswith(".") and found.stem != "state"
            return found in configs

        def on_change(paths: set[str]) -> None:
            names = tuple(Path(p).name for p in paths if Path(p).parent == home.memory)
            if names:
                self._post(Poke("look", names))
            if len(names) < len(paths):
                self._post(Poke("config"))

        def on_trouble(text: str) -> None:
            self._post(Poke("health", text=text))

        await watching.watch(stop, folders, wanted, on_change, on_trouble, poll=how == "poll")
