"""Published methods, kept for comparison: "auto" never chooses them, since others are faster.

cascade.py       "cascade": support vectors of pairs of parts, up a tree
distribution.py  "dip": parts with the distribution of the whole
landmarks.py     the landmarks of "csvrg"
"""
