"""A testbed in the background: started, asked, harmed and ended by commands (thesis, 4.2)."""
