"""What a node process can be made of: ours, and what we are compared with."""
