"""One followed topic: receiving, ordering, keeping, recovering and retiring its events."""
