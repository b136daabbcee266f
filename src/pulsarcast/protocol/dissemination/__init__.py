"""Ways for an event to travel: the tree and the cube (design 2)."""
