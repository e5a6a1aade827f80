# milkd needs only python3 (3.11 or newer) and make; everything else comes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint bench soak clean

run: $(STAMP)  ## a real sitting on a throw-away home: about a minute, checks its own claims
	$(BIN)/python examples/sitting.py

test: $(STAMP) lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## latency and bytes at 1,000, 10,000 and 100,000 percepts, as ratios to bare pyzmq and fdatasync
	$(BIN)/python tests/bench/bench.py

soak: $(STAMP)  ## the daemon killed at random moments while agents write, for MILKD_SOAK_S seconds
	MILKD_SOAK_S=$${MILKD_SOAK_S:-600} $(BIN)/python -m pytest -s tests/process/test_crashes.py -k random_moments

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
