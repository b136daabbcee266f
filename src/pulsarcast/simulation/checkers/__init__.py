"""Checkers: each promise of the protocol, held against what a simulated world did.

- `deliveries`: nothing forged, nothing twice, nothing outside a subscription (at each delivery);
- `publications`: one event per number, one chain per total order, only by those allowed;
- `causality`: parents first, and all heads as parents (at each delivery, and at the end);
- `coverage`: everything due was delivered (at the end);
- `trees`: one tree per topic, no cycle, bounded fan-out (after settling);
- `memory`: nothing in a node grows without bound.
"""
