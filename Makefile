# Two commands do everything on a fresh machine with Python 3.11 or newer: `make run` and `make test`.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: run test quick test-lowest widths lint zoo clean

run: $(VENV)/.installed
	$(BIN)/bench run --defence linac --attack all

test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Everything that needs no other process and trains nothing: under two minutes on two cores.
quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not needs_process and not slow"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The same tests with the lowest versions that pyproject.toml admits.
test-lowest: VENV = .venv-lowest
test-lowest:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --resolution lowest-direct --editable '.[test]'
	$(BIN)/python -m pytest -n 2 --dist loadfile

# What computes is tested at every vector width that this processor has, for each rounds otherwise (tools/vector_widths.py).
# `make widths TESTS=tests` does so with all tests.
TESTS = tests/attacks tests/defences tests/bench/test_gallery.py $(addprefix tests/bench/test_,training.py \
	shipped.py haiku_checkpoint.py referee.py run.py keysearch.py)
widths: $(VENV)/.installed-test
	set -e; for width in $$($(BIN)/python tools/vector_widths.py); do echo "vectors: $$width"; \
	    $(BIN)/python tools/vector_widths.py $$width $(BIN)/python -m pytest -n 2 --dist loadfile $(TESTS); done

# Trains what bench/zoo holds from nothing: hours on two cores; interrupted, it goes on where it was.
zoo: $(VENV)/.installed
	$(BIN)/bench data fetch
	$(BIN)/python tools/zoo.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bench needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest build *.egg-info .pytest_cache .mypy_cache .ruff_cache
