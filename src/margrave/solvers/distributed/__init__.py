"""Exact solvers for rows that are spread over workers.

block_minimization.py  "pbm": blocks of rows, then the working set: the order of the stages.
                       fixed_blocks.py  every block solves for its own variables, then a joint
                       step: `FixedBlocks.run` is the loop
working_set.py         the distributed working-set solver; `DistributedSet._round` is one round.
                       membership.py  its rows; biases.py  the best intercept
cluster.py             the shards, their checkpoints, and recovery from lost workers
checkpoint.py          the state of a fit on disk
"""
