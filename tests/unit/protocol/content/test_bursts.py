"""More matching events at once than a content subscriber has room for come later, not never."""

from functools import partial

import pytest

from pulsarcast.model.events import Attribute
from pulsarcast.model.topic_types import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.protocol.content import following
from pulsarcast.protocol.inputs import Publish, SubscribeContent
from pulsarcast.protocol.topic import frontier
from tests.support.lab import Lab


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER])
def test_a_burst_from_one_publisher_comes_whole(
    order: DeliveryOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier, "BEYOND_MAX", 4)
    monkeypatch.setattr(following, "EARLY_MAX", 4)
    made = Lab(5)
    rule = AttributeRule("price", "float", 0.0, 100.0)
    settings = TopicSettings(open=True, attributes=(rule,), content_routing=True, order=order)
    topic = made.create(0, settings)
    made.subscribe([0, 1], topic)
    made.ask(2, lambda call: SubscribeContent(call, topic, "price < 10", 1))
    made.run(5.0)
    # One that does not match comes first: what is behind it is beyond a gap until members say so.
    for price in (50.0, *(5.0,) * 30):
        given: dict[str, Attribute] = {"price": price}
        made.start(3, partial(Publish, topic=topic, payload=b"", attributes=given))
    made.run(120.0)
    assert len(made.delivered(2, topic)) == 30
