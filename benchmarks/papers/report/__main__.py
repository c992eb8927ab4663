"""Run it: python -m benchmarks.papers.report."""

from benchmarks.papers.report import main

main()
