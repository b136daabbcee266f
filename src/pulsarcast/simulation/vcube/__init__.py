"""VCube-PS as its paper has it: a model of its own, on dense ids (docs/decisions/0018).

The paper: "VCube-PS: A Causal Broadcast Topic-based Publish/Subscribe System" (2018). Sections,
figures, tables and lines of algorithms that are cited here are its. `topology` is section 2, `node`
algorithms 1 and 2, `delays` the delay model of section 4; `broadcast` and `network` are two
simulations over it, the first without order and fast, the second with everything; `experiments`
plays what section 4 measured, and what it left open. Time is in whole units of time (u.t.).
"""
