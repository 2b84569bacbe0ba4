# Two commands, each sets up its own environment: `make demo` shows the tool at work, `make test` runs every check.

PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed

export OMP_NUM_THREADS ?= 1

.PHONY: demo test proofs seeds
demo: $(INSTALLED)
	$(VENV)/bin/python scripts/demo.py

test: $(INSTALLED)
	$(VENV)/bin/python scripts/check
	$(VENV)/bin/python -m pytest -m slow

# Every correct script on every number of ranks, and every mutant; `test` proves a sample of them.
proofs: $(INSTALLED)
	MULTICARD_PROOFS=all $(VENV)/bin/python -m pytest -m slow tests/verify/test_proofs.py

# No correct script is ever failed, whatever the seed: each with fifty. Takes hours.
seeds: $(INSTALLED)
	MULTICARD_SEEDS=50 $(VENV)/bin/python -m pytest -m slow tests/verify/test_proofs.py -k test_a_correct_script

# Only a change of pyproject.toml makes pip run again.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("multicard needs Python 3.10 or newer: make PYTHON=python3.x")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet -e '.[dev]'
	touch $@
