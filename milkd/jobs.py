"""What happens by the clock: apscheduler and watchfiles on an asyncio loop in a thread of their own.

A job only posts to the core's mailbox: the deed is the core's, through its one door. Time passes correctly
if none of them ever runs (M10).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

Job = tuple[str, float, Callable[[], None]]
"""Its name, its interval in seconds, and what it does; quick, from the side thread."""


class SideThread:
    """The second thread. If it dies unasked, ``on_death`` is called with why: the daemon must not limp on."""

    def __init__(
        self,
        jobs: list[Job],
        watcher: Callable[[asyncio.Event], Awaitable[None]],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._jobs = jobs
        self._watcher = watcher
        self._on_death = on_death
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._watching = asyncio.Event()
        """Set, it ends a watch: for good where the thread is stopping, else another one begins."""
        self._scheduler: Any = None
        self._thread = threading.Thread(target=self._run, name="milkd-side", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        """Start the thread and wait until its jobs are set."""
        self._thread.start()
        self._ready.wait(10)

    def stop(self) -> None:
        """Stop jobs and watching, and wait for the thread (a second at most)."""
        self._stopping = True
        self.watch_anew()
        self._thread.join(2)

    def watch_anew(self) -> None:
        """End the watch that runs and begin another."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._watching.set)

    def reschedule(self, name: str, seconds: float) -> None:
        """Give a job another interval."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: self._scheduler.reschedule_job(name, trigger=_every(seconds)))

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._on_death(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        scheduler = self._scheduler = AsyncIOScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        for name, seconds, do in self._jobs:
            scheduler.add_job(_as_coroutine(do), _every(seconds), id=name, name=name)
        scheduler.start()
        self._ready.set()
        try:
            while not self._stopping:
                await self._watcher(self._watching)
                self._watching = asyncio.Event()
        finally:
            scheduler.shutdown(wait=False)


def _every(seconds: float) -> Any:
    return IntervalTrigger(seconds=seconds, timezone="UTC")


def _as_coroutine(do: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    # A plain function would run in a worker thread of its own (apscheduler 3).
    async def run() -> None:
        do()

    return run
