"""The DHT: a Kademlia without IO, which keeps every block on r peers."""
