"""One topic that we follow: its events come in, in order and completely, and go (design 5 to 7)."""
