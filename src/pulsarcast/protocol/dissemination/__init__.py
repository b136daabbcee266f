"""Dissemination: the tree and the cube that carry a topic's events between its members."""
