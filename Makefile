# Everything runs in .venv, which the first command makes; nothing but Python 3.11+ and make is needed.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lint digits clean

demo: $(READY)  ## train on the digits: about a minute on two cores
	$(VENV)/bin/openworld train

test: $(READY) lint  ## everything that CI checks
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses 2 --quiet --doctest-modules src tests

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

digits: $(READY)  ## measure what the README says about the digits
	$(VENV)/bin/python benchmarks/measure.py digits --seeds 0 1 2
	$(VENV)/bin/python benchmarks/measure.py digits-untouched-seeds --seeds 10 11 12 13 14
	$(VENV)/bin/python benchmarks/kmeans_pixels.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
