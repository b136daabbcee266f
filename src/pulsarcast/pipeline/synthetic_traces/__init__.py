"""Clean traces of any size, made without a network: to measure what the pipeline costs.

The traces keep every promise by construction, so whatever a checker finds in them is either planted
or a defect of the checker, and every figure is known beforehand by arithmetic (`plan`). They have
what makes real traces expensive: one topic with 60 % of all lines, and in it one single publisher.

`python -m pulsarcast.pipeline.synthetic_traces --lines 1000000 --out DIR` writes one.
"""

from pulsarcast.pipeline.synthetic_traces.plan import Plan
from pulsarcast.pipeline.synthetic_traces.planning import make_plan
from pulsarcast.pipeline.synthetic_traces.writing import write_traces

__all__ = ["Plan", "make_plan", "write_traces"]
