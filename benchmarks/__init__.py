"""Benchmarks of margrave against other kernel and linear machines on CPUs; see README.md here."""
