"""The network: the core on real sockets, disks and clocks (design, 4 and 9)."""
