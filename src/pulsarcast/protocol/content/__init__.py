"""Content-based subscriptions: a distributed 2d-tree over the DHT (2d-tree thesis)."""
