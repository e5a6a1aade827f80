"""Getting a link to the daemon of a home: connect, wait for one that is starting, or start one.

Only a daemon that cannot be reached costs more than the connect: then a raw connect tells "not running"
(refused) from "starting or busy" (accepted), which are answered at once and by waiting.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from . import paths
from ._link import Link, foreign_owner, listens
from .errors import NoDaemon, Timeout

if TYPE_CHECKING:
    from ._start import Starter

_CONNECT_S = 0.02
"""A daemon on this machine takes a connection in a millisecond; after this it is worth asking why not."""

_PATIENCE_S = 0.5
"""How long to wait on one connection that was accepted and not answered, before trying another."""


class Where(Struct, frozen=True):
    """Which daemon: of a home, or behind an endpoint; and whether it may be started."""

    home: paths.Home
    endpoint: str
    """Given by the caller; "" = found in the home."""
    autostart: bool

    def only_running(self) -> Where:
        """The same daemon, not to be started."""
        return Where(self.home, self.endpoint, False)

    def endpoints(self) -> list[str]:
        """Where it may listen, likeliest first."""
        if self.endpoint:
            return [self.endpoint]
        own = f"ipc://{self.home.socket}"
        told = paths.read_endpoint(self.home)
        return [own] if told is None or told.endpoint == own else [told.endpoint, own]

    def events(self) -> str:
        """Where it publishes events, as far as the home tells."""
        told = paths.read_endpoint(self.home)
        return told.events if told is not None and told.events else f"ipc://{self.home.events}"

    def nobody(self, why: str = "") -> NoDaemon:
        """The error for "no daemon answers", with what the endpoint file tells about it."""
        if self.endpoint:
            return NoDaemon(f"No milkd answers on {self.endpoint}.")
        told = paths.read_endpoint(self.home)
        parts = [f"No milkd answers on {self.home.root}."]
        if told is not None and told.host != paths.this_host():
            parts.append(
                f"milkd {told.version} (pid {told.pid}) last served it on host {told.host}, this is "
                f"{paths.this_host()}: a socket in a home shared between machines or containers is reached "
                "from its own alone."
            )
        elif told is not None and self._other_namespace(told):
            parts.append(f"milkd (pid {told.pid}) last served it from another pid namespace.")
        if why:
            parts.append(why)
        hint = f"Start it with `milkd --home {self.home.root}` (or `milkctl start`)."
        return NoDaemon(" ".join(parts), hint=hint)

    def refusal(self) -> NoDaemon | None:
        """Why this process may not start the daemon itself; None if it may."""
        told = paths.read_endpoint(self.home)
        if told is None or told.host != paths.this_host() or not self._other_namespace(told):
            return None
        return NoDaemon(
            "This process lives in another pid namespace than the daemon's (a sandbox): "
            "a daemon started here would see no other agent.",
            hint=f"Run this outside of the sandbox: milkd --home {self.home.root}",
        )

    @staticmethod
    def _other_namespace(told: paths.Endpoint) -> bool:
        here = paths.this_pid_namespace()
        return bool(told.pid_ns and here and told.pid_ns != here and told.boot_id == paths.this_boot())


def reach(where: Where, deadline: float, *, patient: bool) -> Link:
    """A link that stands. ``patient``: a daemon was there a moment ago, so one not running is restarting.

    ``deadline`` in monotonic seconds. Raises NoDaemon: at once where none runs and none may be started,
    else when the deadline has passed or starting it failed.
    """
    if not where.endpoint and where.home.sockets != where.home.run and foreign_owner(where.home.sockets):
        raise where.nobody(f"{where.home.sockets} belongs to another user, who could pose as the daemon.")
    starter: Starter | None = None
    first = True
    try:
        while True:
            there = ""
            for endpoint in where.endpoints():
                link, accepted = _try(endpoint, deadline, hasty=first)
                if link is not None:
                    return link
                if accepted:
                    there = endpoint
            if not there and where.autostart:
                starter = starter or _starter(where)
                starter.step(deadline)
            elif not there and not patient:
                raise where.nobody()
            if monotonic() >= deadline:
                if there:
                    raise Timeout(f"A daemon listens on {there} but does not answer: starting, busy or stopped.")
                raise where.nobody(starter.story() if starter else "")
            first = False
    finally:
        if starter is not None:
            starter.release()


def _try(endpoint: str, deadline: float, *, hasty: bool) -> tuple[Link | None, bool]:
    """A standing link to ``endpoint``, or None; and whether somebody listens. Waits unless ``hasty``."""
    if hasty and endpoint.startswith("ipc://") and not Path(endpoint.removeprefix("ipc://")).exists():
        return None, False
    link = Link(endpoint)
    try:
        if link.wait_open(min(_CONNECT_S, deadline - monotonic())):
            return link, True
        accepted = listens(endpoint)
        if accepted and link.wait_open(min(_PATIENCE_S, deadline - monotonic())):
            return link, True
    except BaseException:
        link.close()
        raise
    link.close()
    return None, accepted


def _starter(where: Where) -> Starter:
    refusal = where.refusal()
    if refusal is not None:
        raise refusal
    from ._start import Starter

    return Starter(where.home, os.environ)
