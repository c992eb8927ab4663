"""Benchmarks of margrave against other kernel and linear SVMs on CPUs; see README.md here."""
