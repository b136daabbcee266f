"""The DHT: a Kademlia of our own, without IO, that keeps every block on r peers."""
