"""A meta topic followed alone: its events are the topic's new versions (thesis, 4.1.3.1)."""

from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.model.topics import TopicSettings, decode_topic
from pulsarcast.network.node import Node


def test_who_follows_a_meta_topic_alone_gets_versions_and_no_events(tmp_path: Path) -> None:
    async def scene() -> None:
        with trio.fail_after(60):
            async with (
                Node.open(tmp_path / "ann") as ann,
                Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
            ):
                topic = await ann.create_topic("weather")
                versions = await ben.subscribe(f"{ann.peer_id}/weather/meta")
                await ann.publish(topic, b"sunny")
                await ann.update_topic(topic, TopicSettings(open=True))
                version = decode_topic((await anext(versions)).payload)
                assert (version.topic, version.number) == (topic.cid, 1)
                assert version.allowed_publishers is None
                assert [each.id for each in ben.topics()] == []
                by_id = await ben.topic(f"{topic.id}/meta")
                assert by_id.name == "weather/meta"
                with pytest.raises(LocalError, match="choose another"):
                    await ann.create_topic("weather/meta")

    trio.run(scene)
