"""Rows in parts that are solved side by side.

divide_and_conquer.py  "dc" (DC-SVM): levels of clusters, then all rows
levels.py              from many small clusters to few large ones
merge_tree.py          "sodm": parts that are like the whole, merged step by step
parts.py               solves problems part by part on an engine
"""
