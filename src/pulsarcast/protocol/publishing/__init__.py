"""Publishing: gets events into a topic, from members, for authors, and from outside."""
