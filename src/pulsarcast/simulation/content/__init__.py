"""Content-based subscriptions in the simulator: the 2d-tree thesis' experiment, and random worlds."""
