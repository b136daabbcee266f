"""The network: the core on real sockets, disks and clocks (docs/architecture.md, The loop)."""
