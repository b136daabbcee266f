"""Names in the library: taken once, resolved at home, moved by their author alone."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import (
    LocalError,
    NameInUse,
    NotAllowed,
    SettingsDiffer,
    TopicNotFound,
)
from pulsarcast.model.ids import cid_of, cid_text
from pulsarcast.model.topics import DeliveryOrder, Retention, TopicSettings
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node
from pulsarcast.storage.backup import backup, restore


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await scene()

    trio.run(bounded)


def test_a_name_is_taken_once_also_after_a_restart_and_in_a_restored_home(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            with pytest.raises(NameInUse) as refused:
                await ann.create_topic("weather")
            assert refused.value.topic == topic.id
            assert topic.id in str(refused.value)
            backup(tmp_path / "ann", tmp_path / "copy")
        restore(tmp_path / "copy", tmp_path / "restored")
        for home in ("ann", "restored"):
            async with Node.open(tmp_path / home) as again:
                with pytest.raises(NameInUse, match=topic.id):
                    await again.create_topic("weather")
                assert (await again.ensure_topic("weather")).id == topic.id

    play(scene)


def test_of_many_at_once_one_makes_the_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            made: list[str] = []
            refused: list[str] = []

            async def create() -> None:
                try:
                    made.append((await ann.create_topic("weather")).id)
                except NameInUse as error:
                    refused.append(error.topic)

            async def ensure() -> None:
                made.append((await ann.ensure_topic("weather")).id)

            async with trio.open_nursery() as nursery:
                for act in (create, ensure, create, ensure, ensure):
                    nursery.start_soon(act)
            assert len({*made, *refused}) == 1
            assert len(made) + len(refused) == 5
            assert len(refused) >= 1
            assert len(ann.topics()) == 1

    play(scene)


def test_a_new_store_with_the_same_key_learns_from_the_network_that_a_name_is_in_use(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ben") as ben:
            async with Node.open(tmp_path / "ann", bootstrap=ben.addresses) as ann:
                topic = await ann.create_topic("weather")
            for file in (tmp_path / "ann").glob("store.sqlite*"):
                file.unlink()
            async with Node.open(tmp_path / "ann", bootstrap=ben.addresses) as ann:
                with pytest.raises(NameInUse, match=topic.id):
                    await ann.create_topic("weather")
                assert (await ann.topic("weather")).id == topic.id
                assert (await ann.ensure_topic("weather")).id == topic.id
                await ann.publish("weather", b"sunny", ack="accepted")

    play(scene)


def test_a_node_that_reaches_nobody_makes_its_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
        shutil.copytree(tmp_path / "ann", tmp_path / "copy")
        for file in (tmp_path / "copy").glob("store.sqlite*"):
            file.unlink()
        async with Node.open(tmp_path / "copy") as copy:
            other = await copy.create_topic("weather")
            assert other.id != topic.id, "it could not know; peers will show the clash"

    play(scene)


def test_ensure_says_which_settings_differ_with_both_values(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            settings = TopicSettings(order=DeliveryOrder.TOTAL, retention=Retention(count=5))
            topic = await ann.ensure_topic("weather", settings)
            assert (await ann.ensure_topic("weather", settings)).id == topic.id
            assert (await ann.ensure_topic("weather")).id == topic.id
            other = TopicSettings(order=DeliveryOrder.CAUSAL, open=True)
            with pytest.raises(SettingsDiffer) as refused:
                await ann.ensure_topic("weather", other)
            assert refused.value.topic == topic.id
            said = str(refused.value)
            for part in (
                "order is total, not causal",
                "open is false, not true",
                "retention is {count: 5}, not {}",
                f"publishers is [{ann.peer_id}], not []",
                f"sequencers is [{ann.peer_id}], not []",
            ):
                assert part in said
            assert "linking" not in said
            below = await ann.ensure_topic("below")
            with pytest.raises(SettingsDiffer, match=r"subtopics is {}, not {rain: bafyrei"):
                await ann.ensure_topic("weather", subtopics={"rain": below})

    play(scene)


def test_a_text_is_an_id_then_an_own_name_then_an_alias_then_a_name_of_another(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            theirs = await ann.create_topic("weather")
            with pytest.raises(TopicNotFound, match="'weather' is not"):
                await ben.topic("weather")
            naming = Insight(ben).naming
            naming.alias = {"weather": theirs.id, "mine": theirs.id}.get
            assert (await ben.topic("weather")).id == theirs.id
            own = await ben.create_topic("weather")
            slashed = await ben.create_topic("weather/lisbon")
            assert (await ben.topic("weather")).id == own.id
            assert (await ben.topic("mine")).id == theirs.id
            assert (await ben.topic("weather/lisbon")).id == slashed.id
            assert (await ben.topic(f"{ann.peer_id}/weather")).id == theirs.id
            assert (await ben.topic(theirs.id)).id == theirs.id
            meta = (await ben.topic("weather/meta")).id
            assert meta == cid_text(own.descriptor.subtopics["meta"])

    play(scene)


@pytest.mark.parametrize("name", [cid_text(cid_of(b"")), "{peer}/weather", "meta", "a/meta"])
def test_a_name_that_reads_as_something_else_is_refused(tmp_path: Path, name: str) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            with pytest.raises(LocalError, match="choose another"):
                await ann.create_topic(name.format(peer=ann.peer_id))

    play(scene)


def test_a_name_moves_when_its_author_says_so_and_a_reader_goes_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
            Node.open(tmp_path / "cid", bootstrap=ann.addresses) as cid,
        ):
            old = await ann.create_topic("weather")
            new = await ann.create_topic("weather 2", TopicSettings(order=DeliveryOrder.TOTAL))
            name = f"{ann.peer_id}/weather"
            events = await ben.subscribe(name)
            assert (await cid.topic(name)).id == old.id
            moved = await ann.move_name("weather", "weather 2")
            assert moved.id == (await ann.topic("weather")).id == new.id
            found = await cid.topic(name)
            assert (found.id, found.notes) == (new.id, ())
            kept = await ben.topic(name)
            assert kept.id == old.id
            assert [new.id in note and old.id in note for note in kept.notes] == [True]
            assert Insight(ben).naming.notes() == list(kept.notes)
            assert sum("led to" in each.message for each in caplog.records) == 3
            await ann.publish(old, b"to the old one")
            assert (await anext(events)).payload == b"to the old one"
            await ben.unsubscribe(old)
            assert (await ben.topic(name)).id == new.id
            # A version of the topic that lost the name does not take it back.
            await ann.update_topic(old, TopicSettings(payload_bytes_max=100))
            assert (await cid.topic(name)).id == new.id
            await ann.update_topic(
                new, TopicSettings(order=DeliveryOrder.TOTAL, payload_bytes_max=100)
            )
            for each in (name, f"{ann.peer_id}/weather 2"):
                assert (await cid.topic(each)).descriptor.number == 1
            with pytest.raises(TopicNotFound):
                await ann.move_name("no name", new)
            await ben.create_topic("mine")
            with pytest.raises(NotAllowed):
                await ben.move_name("mine", new)

    play(scene)
