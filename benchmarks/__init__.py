"""Benchmarks of margrave against other CPU kernel machines; see README.md in this folder."""
