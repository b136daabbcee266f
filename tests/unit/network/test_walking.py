"""History by content id between real nodes: somebody with nothing but an id reads it all."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pulsarcast import LocalError, Node, NotFollowed, NotFound
from pulsarcast.model.ids import cid_of, cid_text
from pulsarcast.model.publications import Publication
from tests.support.daemon_in_process import play


def test_a_node_that_follows_nothing_rebuilds_a_history(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "bob", bootstrap=ann.addresses) as bob,
        ):
            topic = await ann.create_topic("weather")
            await ann.follow(topic)
            payloads = [b"%d" % number for number in range(30)]
            given = [Publication(payload=payload) for payload in payloads]
            published = await ann.publish_many(topic, given)
            ids = [each.id for each in published if not isinstance(each, LocalError)]
            last = ids[-1]

            event = await bob.fetch(last)
            assert (event.payload, event.id, event.index) == (payloads[-1], last, 0)
            assert event.parents == (ids[-2],)
            whole = await bob.rebuild(last)
            assert [each.payload for each in whole.events] == payloads
            assert (whole.gaps, whole.cursor) == ((), "")
            some = await bob.rebuild(last, limit=12)
            assert [each.payload for each in some.events] == payloads[-12:]
            assert some.cursor
            page = await bob.walk(last, limit=20)
            assert [each.payload for each in page.events] == payloads[:9:-1]
            rest = await bob.walk(last, limit=20, cursor=page.cursor)
            assert [each.payload for each in rest.events] == payloads[9::-1]
            assert rest.cursor == ""
            assert bob.topics() == []

            ahead = await ann.walk(ids[10], limit=15, forward=True)
            assert [each.index for each in ahead.events] == list(range(11, 26))
            ahead = await ann.walk(ids[10], limit=15, forward=True, cursor=ahead.cursor)
            assert [each.payload for each in ahead.events] == payloads[25:]
            assert ahead.cursor == ""
            with pytest.raises(NotFollowed):
                await bob.walk(last, forward=True)
            with pytest.raises(LocalError):
                await bob.fetch(topic.id)
            with pytest.raises(LocalError):
                await bob.walk(last, cursor="not a cursor")
            with pytest.raises(LocalError):
                await bob.walk(last, limit=0)
            with trio.fail_after(20), pytest.raises(NotFound):
                await bob.fetch(cid_text(cid_of(b"nothing")))

    play(scene)
