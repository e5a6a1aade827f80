"""The config in force: where it came from, and what a newer file would say."""

from __future__ import annotations

from pathlib import Path

from milk_client.paths import Home

from milkd.config import BadConfig, Config, parse, parse_legacy


class Settings:
    """The config in force; a bad file leaves it as it is (section 6)."""

    def __init__(self, home: Home, named: Path | None = None) -> None:
        """Read the config of a home, or the file that the user ``named``. Raises BadConfig."""
        self.home = home
        self.named = named
        self.rejected = ""
        """Why the file that is there now is not in force; "" = it is."""
        self.config, self.source = self._read()

    def reload(self) -> tuple[str, bool]:
        """Look at the file anew. Returns what there is to tell ("" = nothing) and whether other knobs are in force."""
        try:
            config, self.source = self._read()
        except BadConfig as error:
            before, self.rejected = self.rejected, "; ".join(error.problems)
            return ("" if self.rejected == before else f"rejected: {self.rejected}"), False
        mended, self.rejected = bool(self.rejected), ""
        changed = config != self.config
        self.config = config
        return (f"read from {self.source or 'defaults'}" if changed or mended else ""), changed

    def _read(self) -> tuple[Config, Path | None]:
        """The named file, `milkd.toml`, or an existing `config.json`; without any, the defaults."""
        for path in [self.named] if self.named is not None else [self.home.config, self.home.legacy_config]:
            try:
                data = path.read_bytes()
            except FileNotFoundError as error:
                if self.named is not None:
                    raise BadConfig((f"{path}: {error.strerror}",)) from None
                continue
            except OSError as error:
                raise BadConfig((f"{path}: {error.strerror}",)) from None
            legacy = path == self.home.legacy_config
            return (parse_legacy(data) if legacy else parse(data, name=path.name)), path
        return Config(), None
