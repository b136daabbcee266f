"""Which topics we are a member of, and why; knowing them, and letting others in (design 2, 6)."""
