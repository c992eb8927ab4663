"""Solvers for the linear kernel, which keep a weight per feature.

solve.py                     Newton's method and coordinate descent for several problems
newton.py                    Newton's method on the primal, step by step
variance_reduced.py          "svrg", "csvrg", "dsvrg": stochastic gradients
expectation_maximization.py  "em" (PEMSVM): repeated least squares, with augmentation.py,
                             joint_maximization.py (several classes) and shards.py
"""
