"""Implementation of the tuner.

plan.py     the order in which the settings of a grid are fitted
race.py     pruning after the first splits
search.py   a pool of threads that fits settings on splits
fits.py     one fit, scored on the test rows; samples.py  the rows of one split
context.py  what a fit shares with others: kernel values (folds.py) and warm starts (starts.py)
table.py    a live table of the best settings
"""
