"""Exact solvers for rows that are spread over workers.

block_minimization.py  "pbm": every block minimises over its own variables, then one exact step
working_set.py         the working set among workers, with membership.py and biases.py
cluster.py             the workers and what they hold; recovers from lost ones
checkpoint.py          the state of a fit on disk
"""
