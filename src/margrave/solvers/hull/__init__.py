"""Distances of convex hulls: NuSVC, NuSVR and HardMarginSVC.

pairs.py        "pairs": working sets, for any kernel
frank_wolfe.py  "gilbert"
saddle.py       "saddle" (Saddle-SVC)
distance.py     bounds of a distance from both sides
shards.py       common code of "gilbert" and "saddle" on engines
"""
