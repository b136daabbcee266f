"""Ways for an event to travel: the tree now, the cube later (design 2)."""
