"""Sampling from the posterior.

gibbs.py   "gibbs"
mixing.py  whether the chains have converged
"""
