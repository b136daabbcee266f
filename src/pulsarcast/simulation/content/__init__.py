"""Content-based subscriptions simulated: the 2d-tree thesis' experiment, and random worlds."""
