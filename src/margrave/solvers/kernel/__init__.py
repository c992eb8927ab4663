"""Exact solvers for any kernel.

descent.py             `descend`: precision, budgets, progress, several problems
working_set.py         "exact": thousands of variables at a time (the loop is in cpp/)
active_set.py          the same with shrinking, for many rows
moving_blocks.py       blocks of rows side by side, on a new partition in every round
copies.py              the active rows at the workers, from one choice of them to the next
sample_start.py        a start from a sample, where nearly all variables are nonzero
joint.py               several classes in one problem
newton.py              "newton" for smooth losses
coordinate_descent.py  "cd", one variable at a time
"""
