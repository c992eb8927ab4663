"""Sampling from the posterior.

gibbs.py   "gibbs": Gibbs sampling of the weights
mixing.py  moments of the draws, and whether the chains have mixed
"""
