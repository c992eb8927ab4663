"""Distances between convex hulls: NuSVC, NuSVR and HardMarginSVC.

The hard-margin SVM is the shortest vector between the convex hulls of two classes; in the nu-SVM
the hulls are reduced, because no row may have more than a given weight, its cap.

pairs.py        "pairs": SMO steps on working sets, for any kernel (the loop is in cpp/)
frank_wolfe.py  "gilbert": Frank-Wolfe steps; `_Run._rounds` is the loop
saddle.py       "saddle" (Saddle-SVC); `_Run._rounds` is the loop
starts.py       where blocks of rows begin
distance.py     upper and lower bounds on a distance
shards.py       common code of "gilbert" and "saddle" on engines
"""
