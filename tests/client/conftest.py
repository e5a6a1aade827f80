"""A short, clean home for every test, and no word of the developer's own environment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MILK_HOME", "MILK_SESSION", "MILK_ROLE", "MILK_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose path leaves room for a socket."""
    with tempfile.TemporaryDirectory(prefix="milk-", dir="/tmp") as name:
        root = Path(name).resolve()
        (root / "run").mkdir()
        yield root


@pytest.fixture
def socket_path(home: Path) -> Path:
    return home / "run" / "milkd.sock"
