"""The real command against a real daemon: a short home of its own, one daemon a module, always ended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ctl import Ctl, end


@pytest.fixture(scope="module")
def ctl() -> Iterator[Ctl]:
    """A command whose daemon runs; it is of this module alone."""
    with tempfile.TemporaryDirectory(prefix="mk-", dir="/tmp") as name:
        ctl = Ctl(Path(name).resolve())
        try:
            ctl.ok("start")
            yield ctl
        finally:
            end(ctl.home)


@pytest.fixture
def idle() -> Iterator[Ctl]:
    """A command on a home where no daemon runs yet."""
    with tempfile.TemporaryDirectory(prefix="mk-", dir="/tmp") as name:
        ctl = Ctl(Path(name).resolve())
        try:
            yield ctl
        finally:
            end(ctl.home)
