"""Pulsarcast: publish/subscribe with no broker.

Every node is a peer; every topic and event is an immutable, signed, content-addressed descriptor.
"""

__version__ = "0.1.0"
