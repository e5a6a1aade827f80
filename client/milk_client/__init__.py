"""The thin client of milkd: needs pyzmq and msgspec, imports nothing of the daemon."""
