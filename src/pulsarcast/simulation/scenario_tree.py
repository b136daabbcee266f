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
from pulsarcast.simulation.settled import hand_out_topics

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
    if options.settled:
        run.fleet.add_down(nodes)
    else:
        run.join(nodes)
    author = rng.randrange(nodes)
    members = rng.sample(range(nodes), subscribers)
    made = begin_settled if options.settled else begin
    topic = made(run, author, members)
    if topic is None:
        return run.result()
    run.settle()
    publish(run, topic, members, events)
    run.expected_due = events * subscribers
    run.settle()
    return run.result()


def begin(run: Run, author: int, members: list[int]) -> Cid | None:
    """Create the topic and let its members subscribe, one after the other."""
    topic = _create(run, author)
    if topic is not None:
        _subscribe(run, topic, members, SUBSCRIBE_GAP_S)
    return topic


def begin_settled(run: Run, author: int, members: list[int]) -> Cid | None:
    """Let the topic be older than the world: all know it, and subscribe before any time passes."""
    world = run.world
    with world.instantly():
        world.restart(author)
        topic = _create(run, author)
        if topic is None:
            return None
        world.kill(author)
        stores = {world.peer(index): world.store(index) for index in range(world.size)}
        readers = [world.store(index) for index in members]
        hand_out_topics(world.store(author), readers, stores, run.parameters)
        world.start_settled()
        _subscribe(run, topic, members, 0.0)
    return topic


def _create(run: Run, author: int) -> Cid | None:
    world, options = run.world, run.options
    topics: list[Cid] = []

    def created(cid: Cid | None) -> None:
        if cid is not None:
            topics.append(cid)

    settings = settings_for(options.order, world.peer(author), options.dissemination)
    run.applications.create(author, "tree", settings, created)
    if world.run_until(lambda: bool(topics), world.now + SETUP_S_MAX):
        return topics[0]
    run.observer.findings.add("stuck", "the topic was never created")
    return None


def _subscribe(run: Run, topic: Cid, members: list[int], gap_s: float) -> None:
    world = run.world
    joined: list[bool] = []
    for number, index in enumerate(members, start=1):
        run.applications.subscribe(index, topic, joined.append)
        world.run(world.now + gap_s)
        run.progress("subscribers", number, len(members))
    if not world.run_until(lambda: len(joined) == len(members), world.now + SETUP_S_MAX):
        run.observer.findings.add("stuck", f"{len(joined)} of {len(members)} subscribed")


def publish(
    run: Run, topic: Cid, members: list[int], events: int, gap_s: float = EVENT_GAP_S
) -> None:
    """Let random members publish, and wait until all events are replicated."""
    world, rng = run.world, run.world.stream("workload")
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
        world.run(world.now + gap_s)
        run.progress("events", number + 1, events)
    if not world.run_until(lambda: len(answered) == events, world.now + EVENTS_S_MAX):
        run.observer.findings.add("stuck", f"{len(answered)} of {events} events answered")
