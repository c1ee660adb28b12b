# The commands of the project. Variables: PYTHON (3.10 to 3.13) and VENV (where to install).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO_PROMPT := Write a quicksort algorithm in Python. Write code only.

.PHONY: help setup demo test test-gpu check bench clean

help:
	@echo "make demo    install the program and answer one prompt with the default model"
	@echo "make test    install everything and run the tests"
	@echo "make test-gpu  all recorded numbers by interpreted kernels of a GPU; it takes hours"
	@echo "make check   formatting, lint, types, floors"
	@echo "make bench   measure this machine and the default model on it"
	@echo "make setup   install for development;  make clean  forget the installation"

setup: $(VENV)/.dev

demo: $(VENV)/.runtime
	$(BIN)/turbodflash -p "$(DEMO_PROMPT)" -n 200

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# All recorded numbers by the kernels of a GPU, interpreted: hours.
test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal tests/whole_gpu_goldens.py

check: $(VENV)/.dev
	$(BIN)/python tests/check.py

bench: $(VENV)/.runtime
	$(BIN)/turbodflash bench

clean:
	rm -rf $(VENV) build dist *.egg-info

# Bytecode for the modules that stay here: where Python is told to write none, each start would
# compile them again.
COMPILE = $(BIN)/python -m compileall -q engine kernels turbodflash_cli

# The stamps say when an installation was last made equal to pyproject.toml and constraints.txt.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing turbodflash into $(VENV)"
	$(PIP) install -qq --editable . --constraint constraints.txt
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing turbodflash and its development tools into $(VENV)"
	$(PIP) install -qq --editable '.[dev]' --constraint constraints.txt
	@$(COMPILE)
	@touch $(VENV)/.runtime $@

# Some distributions ship venv without ensurepip; their own pip then brings one in.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; (3, 10) <= sys.version_info < (3, 14) or sys.exit("turbodflash needs Python 3.10 to 3.13, and $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip install -qq --upgrade --target \
	    "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" pip; }
