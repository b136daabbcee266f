"""One topic, many subscribers, and what one event costs, on the tree or on the cube.

Most nodes do not subscribe. An event still costs about one message per subscriber
(docs/spec/pulsarcast.md, Overview).
"""

from __future__ import annotations

from pulsarcast.model.ids import Cid
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, Run, no_progress

SUBSCRIBE_GAP_S = 0.02
EVENT_GAP_S = 1.0
SETUP_S_MAX = 3_600.0
EVENTS_S_MAX = 3_600.0


def run_tree(options: Options, *, progress: Progress = no_progress) -> Result:
    """Join, create, subscribe at random, publish a few events."""
    nodes = 1_000 if options.nodes is None else options.nodes
    subscribers = min(nodes, 100 if options.subscribers is None else options.subscribers)
    events = 20 if options.events is None else options.events
    run = Run(options, progress=progress)
    rng = run.world.stream("workload")
    run.join(nodes)

    author = rng.randrange(nodes)
    topics: list[Cid] = []

    def created(cid: Cid | None) -> None:
        if cid is not None:
            topics.append(cid)

    settings = settings_for(options.order, run.world.peer(author), options.dissemination)
    run.applications.create(author, "tree", settings, created)
    if not run.world.run_until(lambda: bool(topics), run.world.now + SETUP_S_MAX):
        run.observer.findings.add("stuck", "the topic was never created")
        return run.result()
    topic = topics[0]

    members = rng.sample(range(nodes), subscribers)
    joined: list[bool] = []
    for number, index in enumerate(members, start=1):
        run.applications.subscribe(index, topic, joined.append)
        run.world.run(run.world.now + SUBSCRIBE_GAP_S)
        progress("subscribers", number, subscribers)
    deadline_s = run.world.now + SETUP_S_MAX
    if not run.world.run_until(lambda: len(joined) == subscribers, deadline_s):
        run.observer.findings.add("stuck", f"{len(joined)} of {subscribers} subscribed")
    run.settle()

    run.measure_from_here()
    answered: list[Cid | None] = []
    for number in range(events):
        run.applications.publish(
            rng.choice(members),
            topic,
            b'{"number":%d}' % number,
            injection=str(number),
            then=answered.append,
        )
        run.world.run(run.world.now + EVENT_GAP_S)
        progress("events", number + 1, events)
    if not run.world.run_until(lambda: len(answered) == events, run.world.now + EVENTS_S_MAX):
        run.observer.findings.add("stuck", f"{len(answered)} of {events} events answered")
    run.expected_due = events * subscribers
    run.settle()
    return run.result()
