"""One topic that we follow: its events come in, in order and completely, and go."""
