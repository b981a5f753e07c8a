# Everything runs in .venv, which the first command creates. You need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses 2 --quiet --doctest-modules src tests

.PHONY: demo quick test lint docs release-check digits clean

demo: $(READY)  ## train on the digits: about half a minute on two cores, after the installation
	$(VENV)/bin/openworld train

quick: $(READY)  ## what to run while you change something: under a minute on two cores
	$(PYTEST) -m "not slow"

test: $(READY) lint  ## all tests, as CI runs them
	$(PYTEST)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

docs: $(READY)  ## build the site in docs/_build/html; a warning or a broken link is an error
	rm -rf docs/generated
	$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build/html

release-check: $(READY)  ## build, install the wheel in a clean environment, run the demo from it, check the metadata
	$(VENV)/bin/python tools/release_check.py

digits: $(READY)  ## measure what the README says about the digits
	$(VENV)/bin/python benchmarks/measure.py digits --seeds 0 1 2
	$(VENV)/bin/python benchmarks/measure.py digits-untouched-seeds --seeds 10 11 12 13 14
	$(VENV)/bin/python benchmarks/kmeans_pixels.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis docs/_build docs/generated dist
