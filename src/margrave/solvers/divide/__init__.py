"""Solvers that divide the rows into parts and solve these in parallel.

divide_and_conquer.py  "dc" (DC-SVM): levels of clusters, then all rows
levels.py              the loop over the levels, from many small clusters to few large ones
merge_tree.py          "sodm" (SODM): parts that resemble the whole, merged level by level
parts.py               solves problems part by part on an engine
"""
