"""Implementation of the tuner: order of settings, shared kernel values, workers, pruning."""
