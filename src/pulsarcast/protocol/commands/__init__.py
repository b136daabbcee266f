"""What an application asks of a node, and the answers it gets."""
