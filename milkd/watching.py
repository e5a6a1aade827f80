"""Noticing that files changed: watchfiles on the folders, filtered by name.

A watch on a file goes silent after its first atomic replace, so folders are watched. If watching fails, or
is off, a slow look at the files (a job) does the same, later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from watchfiles import Change, awatch

RETRY_S = 10.0


async def watch(
    stop: asyncio.Event,
    folders: list[Path],
    wanted: Callable[[str], bool],
    on_change: Callable[[set[str]], None],
    on_health: Callable[[str], None],
    *,
    poll: bool,
) -> None:
    """Tell the names of files that changed, until ``stop``. Watches anew where the folder itself is replaced.

    ``on_health`` gets a sentence while watching does not work, "" when it does.
    """
    while not stop.is_set():
        try:
            on_health("")
            async for changes in awatch(
                *folders,
                watch_filter=lambda _, path: wanted(path),
                stop_event=stop,
                debounce=200,
                step=50,
                recursive=False,
                force_polling=poll,
                poll_delay_ms=1000,
                ignore_permission_denied=True,
            ):
                on_change({path for _, path in changes})
                if any(kind is Change.deleted and Path(path) in folders for kind, path in changes):
                    break
        except (OSError, RuntimeError) as error:
            on_health(f"files are not watched ({error}); edits are noticed within a minute")
        if not stop.is_set():
            await _pause(stop, RETRY_S)


async def off(stop: asyncio.Event) -> None:
    """No watching: wait for the end."""
    await stop.wait()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
