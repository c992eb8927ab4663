"""The posterior by sampling.

gibbs.py   "gibbs"
mixing.py  whether the chains have converged
"""
