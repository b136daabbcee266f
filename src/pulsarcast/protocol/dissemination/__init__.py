"""Overlays, in which a topic's events travel: the tree and the cube (docs/spec/cube.md)."""
