"""The topics that a node is a sequencer of, on its own: which summons it follows."""

from pulsarcast.model.ids import cid_of
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.sequencing.registry import SEQUENCED_TOPICS_MAX, SequencerRegistry
from tests.support.parts import Core
from tests.support.people import BOB, topic_of
from tests.unit.protocol.sequencing.work import HER, HIM, ME


def registry_of(core: Core) -> SequencerRegistry:
    return SequencerRegistry(
        core.context,
        core.descriptors,
        core.following,
        core.publisher,
        core.outbox,
    )


def test_a_node_looks_for_a_bounded_number_of_topics_that_may_name_it() -> None:
    core = Core()
    registry = registry_of(core)
    for number in range(SEQUENCED_TOPICS_MAX + 1):
        registry.summoned(cid_of(b"%d" % number))
    assert len(core.network.finding) == SEQUENCED_TOPICS_MAX


def test_a_node_becomes_a_sequencer_only_of_a_topic_that_names_it() -> None:
    for first, is_named in ((ME, True), (HER, False)):
        core = Core()
        registry = registry_of(core)
        settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(first, HIM))
        topic = topic_of(BOB, settings)
        registry.summoned(topic.cid)
        core.network.found(topic.block)
        assert (topic.cid in registry.by_topic) is is_named
        core.network.finding.clear()
        registry.summoned(topic.cid)
        assert core.network.finding == [], "the node does not look again"
