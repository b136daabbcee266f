"""Hardware: what inputs and bytes cost a simulated node, so that load shows.

Without it a node takes no time to think and its bytes leave at once, whatever is asked of it. With
it a node is busy: what comes for it waits until a core is free (`machines`), and its bytes leave
over an uplink, one after the other (`uplinks`). What one input costs is measured (`costs`):
`pulsarcast testbed costs` writes `measured.json`.
"""
