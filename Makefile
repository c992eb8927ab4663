# Everything runs in .venv, which is created on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
SECONDS ?= 600

.PHONY: help demo test test-gpu sanitize-gpu bench-gpu fuzz chaos budgets bench papers lint docs dist changelog clean

help:
	@echo "make demo   train on 100,000 generated rows; table and pictures"
	@echo "make test   run the tests: about ten minutes on two cores"
	@echo "make test-gpu   the tests of graphics cards, on a real one; bench-gpu measures it against threads"
	@echo "make sanitize-gpu   the programs of cards under compute-sanitizer"
	@echo "make fuzz   feed damaged files to all readers, and search for false certificates: four minutes"
	@echo "make chaos  random faults on a real Dask cluster for ten minutes (SECONDS=60 for one)"
	@echo "make budgets  measure time and memory of every solver from outside, at 300,000 rows"
	@echo "make bench  measure against scikit-learn and scikit-learn-intelex (needs MARGRAVE_DATA)"
	@echo "make papers measure the tables of the papers (needs MARGRAVE_DATA)"
	@echo "make lint   ruff, mypy, the import contract, clang-format and codespell"
	@echo "make docs   run the examples and build the documentation: docs/_build/html/index.html"
	@echo "make dist   source and wheel for others; the wheel is installed elsewhere and tested"
	@echo "make changelog  collect the fragments of changes/ into CHANGELOG.md, for a release"

FORMATTED := $(wildcard cpp/*.hpp cpp/*.cpp)
SOURCES := pyproject.toml CMakeLists.txt $(FORMATTED) $(wildcard cpp/cuda/* cpp/cuda/std/*)
# Without isolation the objects of the last build are used again.
PIP_INSTALL := $(BIN)/python -m pip install --no-build-isolation --editable
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])

$(BIN)/python:
	@echo "Setting up $(VENV): the core is compiled and packages are downloaded, two to four minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet cmake ninja $$($(BIN)/python -c '$(BUILD_REQUIRES)')

# The package alone, and again when one of its sources changes; -v shows which file is being compiled.
$(VENV)/core: $(BIN)/python $(SOURCES)
	$(PIP_INSTALL) . --no-deps -v
	@touch $@

# One stamp per set of extras.
$(VENV)/installed-%: $(VENV)/core pyproject.toml
	@echo "Installing packages for: $*"
	$(PIP_INSTALL) ".[$*]"
	@touch $@

demo: $(VENV)/installed-plots
	@echo "Training and drawing: about ten seconds"
	$(BIN)/margrave demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-gpu: $(VENV)/installed-test,cuda
	MARGRAVE_CARD=192 $(BIN)/python -m pytest tests/test_cuda.py tests/test_cuda_sources.py

sanitize-gpu: $(VENV)/installed-test,cuda
	$(BIN)/python -m tests.sanitize

bench-gpu: $(VENV)/installed-bench,cuda
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m benchmarks.pages

fuzz: $(VENV)/installed-test
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz_certificates

chaos: $(VENV)/installed-test
	$(BIN)/python -m tests.chaos --seconds $(SECONDS)
	$(BIN)/python -m benchmarks.pages

budgets: $(VENV)/installed-test
	$(BIN)/python -m tests.budgets

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.tuning
	$(BIN)/python -m benchmarks.reading
	$(BIN)/python -m benchmarks.alternatives
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.plot
	$(BIN)/python -m benchmarks.pages

papers: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.papers.dcsvm
	$(BIN)/python -m benchmarks.papers.pbm
	$(BIN)/python -m benchmarks.papers.sodm
	$(BIN)/python -m benchmarks.papers.saddle
	$(BIN)/python -m benchmarks.papers.study
	$(BIN)/python -m benchmarks.augmentation
	$(BIN)/python -m benchmarks.papers.report
	$(BIN)/python -m benchmarks.pages

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)
	$(BIN)/codespell src cpp docs tests *.md CITATION.cff Makefile pyproject.toml CMakeLists.txt

docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -q -W -n --keep-going docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

dist: $(VENV)/installed-dev
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m tests.wheel dist build/clean
	$(BIN)/twine check --strict dist/*

changelog: $(VENV)/installed-dev
	$(BIN)/towncrier build --yes

clean:
	rm -rf $(VENV) build dist demo_output docs/_build docs/api docs/gallery
