"""What `pulsarcast doctor` says of a key."""

from pathlib import Path

from pulsarcast.cli.doctor import _key
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_text
from pulsarcast.storage.home import write_key


def test_only_the_key_of_the_node_that_was_asked_is_judged(tmp_path: Path) -> None:
    own, other = (peer_text(Identity.from_seed(bytes([n]) * 32).peer_id) for n in (1, 2))
    elsewhere = "it is on another machine, or in another home"
    assert _key(tmp_path, own).text == elsewhere
    write_key(tmp_path, Identity.from_seed(bytes([1]) * 32))
    assert _key(tmp_path, own).text == "nobody else can read it"
    (tmp_path / "key").chmod(0o644)
    assert _key(tmp_path, own).verdict == "bad"
    assert _key(tmp_path, other) == ("key", "good", elsewhere)
