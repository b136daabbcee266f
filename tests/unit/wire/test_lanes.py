from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import EventMessage, StoreBlocks
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.lanes import UNDER_WAY_BYTES_MAX, Lanes, lane_of
from pulsarcast.wire.parts import PART_BYTES, Joiner
from tests.support.people import ALICE, event_of, topic_of

MEGABYTE = 1024 * 1024


def leave(lanes: Lanes, turns: int = 100_000) -> list[bytes]:
    """The frames that leave in so many turns, in the order in which they are whole."""
    reader, joiner = FrameReader(), Joiner()
    whole: list[bytes] = []
    while lanes and turns:
        turns -= 1
        whole += joiner.join(reader.feed(lanes.take()))
    assert lanes or (joiner.held_bytes, lanes.queued_bytes) == (0, 0)
    return whole


def frame(octet: bytes, size: int) -> bytes:
    return octet * size


def test_the_frames_of_a_topic_keep_their_order() -> None:
    lanes = Lanes()
    sent = [frame(bytes((10 + at,)), size) for at, size in enumerate((9, MEGABYTE, 70_000, 1, 5))]
    for each in sent:
        lanes.put("topic", write_frames([each]))
    assert lanes.queued_bytes > sum(map(len, sent))
    assert leave(lanes) == sent


def test_a_small_event_waits_for_no_large_one_of_another_topic() -> None:
    lanes = Lanes()
    for _ in range(8):
        lanes.put("films", write_frames([frame(b"a", MEGABYTE)]))
    lanes.put("quotes", write_frames([b"a quote"]))
    assert leave(lanes, turns=2) == [b"a quote"]


def test_topics_share_a_link_by_bytes() -> None:
    lanes = Lanes()
    for _ in range(4):
        lanes.put("films", write_frames([frame(b"a", MEGABYTE)]))
    for _ in range(20_000):
        lanes.put("quotes", write_frames([frame(b"b", 200)]))
    left = [each for each in leave(lanes, turns=40) if each[:1] == b"b"]
    assert 0.9 * 20 * PART_BYTES < sum(map(len, left)) <= 20 * PART_BYTES


def test_no_more_is_under_way_than_the_peer_holds() -> None:
    lanes = Lanes()
    for topic in range(20):
        lanes.put(topic, write_frames([frame(bytes((10 + topic,)), MEGABYTE)]))
    lanes.put("largest", write_frames([frame(b"z", FRAME_BYTES_MAX)]))
    for topic in range(20, 30):
        lanes.put(topic, write_frames([frame(bytes((10 + topic,)), MEGABYTE)]))
    assert UNDER_WAY_BYTES_MAX == FRAME_BYTES_MAX
    left = leave(lanes)
    assert len(left) == 31
    # What came later began later.
    assert left.index(frame(b"z", FRAME_BYTES_MAX)) == 20


def test_a_replica_stands_in_line_behind_the_events_of_its_topic() -> None:
    topic = topic_of(ALICE)
    block = event_of(ALICE, topic).block
    assert lane_of(EventMessage(block, 1)) == lane_of(StoreBlocks(1, (block,))) == topic.cid
    assert lane_of(StoreBlocks(1, ())) is None
    assert lane_of(StoreBlocks(1, (topic.block,))) is None
