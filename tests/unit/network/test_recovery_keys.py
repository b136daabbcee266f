"""A topic whose author is gone for good goes on by one of its recovery keys: real nodes."""

from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import NotAllowed
from pulsarcast.model.topics import TopicSettings
from pulsarcast.network.node import Node


def test_a_recovery_key_takes_over_a_topic_whose_author_is_gone(tmp_path: Path) -> None:
    async def scene() -> None:
        with trio.fail_after(60):
            async with (
                Node.open(tmp_path / "ben") as ben,
                Node.open(tmp_path / "cid", bootstrap=ben.addresses) as cid,
            ):
                keys = (ben.identity,)
                async with Node.open(tmp_path / "ann", bootstrap=ben.addresses) as ann:
                    name = f"{ann.peer_id}/weather"
                    settings = TopicSettings(request_to_publish=False, recovery_keys=keys)
                    topic = await ann.create_topic("weather", settings)
                    events = await cid.subscribe(topic)
                    await ben.subscribe(topic)
                    await ann.publish(topic, b"by ann")
                    assert (await anext(events)).payload == b"by ann"
                # Ann's key is lost, and Ben's may go on in its place.
                with pytest.raises(NotAllowed):
                    await ben.publish(topic, b"not yet")
                with pytest.raises(NotAllowed, match="recovery key"):
                    await cid.update_topic(topic, settings)
                changed = TopicSettings(publishers=(ben.identity,), recovery_keys=keys)
                version = await ben.update_topic(topic, changed)
                assert version.id == topic.id
                await ben.publish(topic, b"by ben")
                assert (await anext(events)).payload == b"by ben"
                async with Node.open(tmp_path / "dan", bootstrap=cid.addresses) as dan:
                    late = await dan.subscribe(name, start="beginning")
                    assert {(await anext(late)).payload for _ in range(2)} == {b"by ann", b"by ben"}

    trio.run(scene)
