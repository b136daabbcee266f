"""Which topics the node is a member of, and why; finding topics, and letting others in."""
