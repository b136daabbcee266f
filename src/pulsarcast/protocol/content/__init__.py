"""Content-based subscriptions: a distributed 2d-tree over our DHT (2d-tree thesis)."""
