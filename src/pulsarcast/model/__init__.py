"""The values that all rooms share: keys, ids, descriptors, filters, trace records, API views.

No clock, no IO and no chance in here. Every other room imports from here, and this room imports
from none (docs/architecture.md).
"""
