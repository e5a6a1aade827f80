"""The `milkd` command: read the arguments and the config, take the lock, run the daemon."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milk_client.errors import Invalid
from milk_client.paths import find_home
from milk_client.wire import VERSION

from milkd import host
from milkd.config import BadConfig, Config, shown
from milkd.daemon import Daemon
from milkd.journal import JournalTooNew
from milkd.loading import TooNew
from milkd.settings import Settings
from milkd.transport import SocketTaken

EXIT_UNEXPECTED = 1
EXIT_USAGE = 2
EXIT_RUNNING = 3


class _Json(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__name__
        return json.dumps(told)


class _Text(logging.Formatter):
    """One line an event; of a fault inside its kind and place, never what was in a request."""

    def formatException(self, ei: Any) -> str:
        _, error, trace = ei
        last = traceback.extract_tb(trace)[-1]
        return f"  {type(error).__name__} at {Path(last.filename).name}:{last.lineno} in {last.name}"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="milkd", description="The memory that AI agents on a machine share.")
    parser.add_argument("--home", metavar="DIR", help="where memory lives (default: $MILK_HOME or ~/.milk)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: milkd.toml in the home)")
    parser.add_argument("--listen", metavar="tcp://…", help="listen on TCP too; needs keys, see the docs")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", choices=["text", "json"])
    parser.add_argument("--check-config", metavar="FILE", nargs="?", const="", help="check a config file and exit")
    parser.add_argument("--version", action="version", version=f"milkd {VERSION}")
    return parser.parse_args(argv)


def _log(config: Config, given: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    kind = given.log_format or config.daemon.log_format
    handler.setFormatter(_Json() if kind == "json" else _Text("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=(given.log_level or config.daemon.log_level).upper(), handlers=[handler], force=True)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    logging.getLogger("watchfiles").setLevel(logging.ERROR)


def _say(text: str) -> None:
    sys.stderr.write(f"milkd: {text}\n")


def _check_config(settings: Settings) -> int:
    config = settings.config
    for warning in config.warnings:
        sys.stdout.write(f"warning: {warning}\n")
    sys.stdout.write(
        f"{settings.source or 'no config file, all defaults'}: good, {len(shown(config)['memory'])} memory knobs\n"
    )
    return 0


def run(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; returns the exit status: 0 clean, 1 unexpected, 2 bad config or usage, 3 already running."""
    given = _arguments(argv)
    try:
        home = find_home(given.home, os.environ)
    except Invalid as error:
        _say(f"{error.message}. {error.hint}")
        return EXIT_USAGE
    config_path = Path(given.check_config or given.config).absolute() if given.check_config or given.config else None
    try:
        settings = Settings(home, config_path)
    except BadConfig as error:
        for problem in error.problems:
            _say(problem)
        return EXIT_USAGE
    if given.check_config is not None:
        return _check_config(settings)
    if given.listen:
        _say("--listen: TCP is for known keys only, and this version has none; agents on this machine need no TCP")
        return EXIT_USAGE
    _log(settings.config, given)
    lock = host.Lock(home)
    try:
        host.raise_descriptor_limit()
        host.prepare(home)
        lock.take()
        daemon = Daemon(settings, lock, VERSION, lambda config: _log(config, given))
        # Whenever the loop lets go of the interpreter (each send, each sync), the writer of the files may hold
        # it for as long: at the usual 5 ms a batch of answers would wait for it ten times over.
        sys.setswitchinterval(0.0001)
        # What was loaded stays: a full collection need not look at it again and again.
        status = daemon.run(after_load=gc.freeze)
    except host.AlreadyRunning as error:
        _say(str(error))
        return EXIT_RUNNING
    except (host.Unusable, SocketTaken, TooNew, JournalTooNew) as error:
        _say(str(error))
        return EXIT_USAGE
    except OSError as error:
        _say(f"{error.filename or home.root}: {error.strerror}; nothing was changed")
        return EXIT_UNEXPECTED
    except Exception:
        logging.getLogger("milkd").exception("ended by a fault of its own; what was answered is on disk")
        return EXIT_UNEXPECTED
    finally:
        lock.release()
    return status


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
