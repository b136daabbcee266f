"""What things are: keys, ids, descriptors, trace records; no clock, no IO, no chance inside.

Every other room imports from here and this room imports from none (design, section 3).
"""
