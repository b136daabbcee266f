"""History by content id: events of any topic, and walks back along their links."""
