import pytest

from pulsarcast.testbed.messages import (
    Answer,
    Command,
    Measured,
    Open,
    Publish,
    Published,
    Splitter,
    Stop,
    decode_answer,
    decode_command,
    encode,
)

COMMANDS: list[Command] = [
    Open(1, "/ip4/127.0.0.1/tcp/0", ["/ip4/127.0.0.1/tcp/1/p2p/x"]),
    Publish(2, b"topic", b"payload" * 100, 7, "7", "accepted"),
    Stop(3),
]
ANSWERS: list[Answer] = [Published(2, b"event", 3), Measured(4, 5, 6)]


@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_messages_survive_however_they_are_cut(step: int) -> None:
    text = b"".join(encode(command) for command in COMMANDS)
    splitter = Splitter()
    bodies = [
        body
        for start in range(0, len(text), step)
        for body in splitter.feed(text[start : start + step])
    ]
    assert [decode_command(body) for body in bodies] == COMMANDS


def test_answers_are_told_apart() -> None:
    bodies = Splitter().feed(b"".join(encode(answer) for answer in ANSWERS))
    assert [decode_answer(body) for body in bodies] == ANSWERS
