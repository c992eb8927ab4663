# Everything runs in .venv, which is created on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help demo test test-gpu bench-gpu fuzz budgets bench papers lint docs dist changelog clean

help:
	@echo "make demo   set up and train on 100,000 generated rows; table and pictures"
	@echo "make test   set up and run the tests"
	@echo "make test-gpu   the tests of graphics cards, on a real one; bench-gpu measures it against threads"
	@echo "make fuzz   feed damaged files to all readers, and search for false certificates: four minutes"
	@echo "make budgets  measure time and memory of every solver from outside, at 300,000 rows"
	@echo "make bench  measure against scikit-learn and scikit-learn-intelex (needs MARGRAVE_DATA)"
	@echo "make papers measure the tables of the papers (needs MARGRAVE_DATA)"
	@echo "make lint   ruff, mypy, the import contract, clang-format and codespell"
	@echo "make docs   run the examples and build the documentation: docs/_build/html/index.html"
	@echo "make dist   source and wheel for others, checked"
	@echo "make changelog  collect the fragments of changes/ into CHANGELOG.md, for a release"

# One stamp per set of extras; rebuilt when a source of the package changes.
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/*.hpp cpp/*.cpp)

FORMATTED := $(wildcard cpp/*.hpp cpp/*.cpp)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed-%: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

demo: $(VENV)/installed-plots
	$(BIN)/margrave demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-gpu: $(VENV)/installed-test,cuda
	MARGRAVE_CARD=1 $(BIN)/python -m pytest tests/test_cuda.py tests/test_cuda_sources.py

bench-gpu: $(VENV)/installed-bench,cuda
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m benchmarks.pages

fuzz: $(VENV)/installed-test
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz_certificates

budgets: $(VENV)/installed-test
	$(BIN)/python -m tests.budgets

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.tuning
	$(BIN)/python -m benchmarks.reading
	$(BIN)/python -m benchmarks.alternatives
	$(BIN)/python -m benchmarks.plot
	$(BIN)/python -m benchmarks.pages

papers: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.papers.dcsvm
	$(BIN)/python -m benchmarks.papers.pbm
	$(BIN)/python -m benchmarks.papers.sodm
	$(BIN)/python -m benchmarks.papers.saddle
	$(BIN)/python -m benchmarks.augmentation
	$(BIN)/python -m benchmarks.papers.report

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
	$(BIN)/twine check --strict dist/*

changelog: $(VENV)/installed-dev
	$(BIN)/towncrier build --yes

clean:
	rm -rf $(VENV) build dist demo_output docs/_build docs/api docs/gallery
