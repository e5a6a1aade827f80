"""Stands between an agent and the daemon that it starts, so that the daemon is nobody's child; a script.

Starts the command given as arguments with /dev/null as its standard input, then waits for the first of
two things: the command ends (exit with its status), or the agent says through standard input that it has
heard from the daemon, or is gone (exit 0 and leave the daemon to init: no zombie stays with the agent).
"""

import os
import select
import signal
import sys


def main(command: list[str]) -> int:
    """The exit status: the command's, 0 when released, 127 when it cannot be run."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written to ``wake``
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        child = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0)],
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD],
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201  # this is the log
        return 127
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) & 0xFF
        if 0 in readable:
            return 0
        os.read(woken, 512)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
