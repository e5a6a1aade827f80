"""Who a client is: the session, role and daemon that its arguments and the environment name."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from . import paths, wire
from ._reach import Where
from .errors import Invalid

ROLES: dict[str, wire.Role] = {"primary": "primary", "escalation": "escalation", "user": "user"}


def check_timeout(seconds: float) -> float:
    """The seconds themselves. Raises Invalid unless they are a positive, finite number."""
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds <= 0:
        raise Invalid("timeout must be a positive number of seconds.", field="timeout")
    return float(seconds)


def find_role(given: str | None, env: Mapping[str, str], fallback: wire.Role) -> wire.Role:
    """The argument, else ``MILK_ROLE``, else ``fallback``. Raises Invalid for another word."""
    word = given if given is not None else env.get("MILK_ROLE", "")
    if given is None and not word:
        return fallback
    if word not in ROLES:
        raise Invalid(f"Role {ascii(word)[:60]} is none of {', '.join(ROLES)}.", field="role")
    return ROLES[word]


def find_session(given: str | None, env: Mapping[str, str]) -> str:
    """The argument, else ``MILK_SESSION``, else the working directory's. Raises Invalid for a bad name."""
    if given is not None:
        return paths.check_session(given)
    try:
        here = os.getcwd()  # noqa: PTH109  # a Path would say the same
    except FileNotFoundError:
        here = "/"  # the directory was removed below us: no project
    return paths.derive_session(here, env, os.path.expanduser("~"))  # noqa: PTH111


def find_daemon(
    home: str | os.PathLike[str] | None, endpoint: str | None, autostart: bool, env: Mapping[str, str]
) -> Where:
    """Which daemon to talk to. One behind a given endpoint is never started: it may be remote."""
    return Where(home=paths.find_home(home, env), endpoint=endpoint or "", autostart=autostart and not endpoint)
