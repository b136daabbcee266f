"""How messages travel: Protocol Buffers, one message a frame, frames on a stream (thesis, 3.4).

`codec` turns messages into bytes and back, `framing` cuts a stream into frames, and `hello` opens
one. `derive` makes a codec from a message's type, of the `shapes` of its fields.
docs/spec/wire.md is their specification.

After a change of pulsarcast.proto, from the project's folder:

    .venv/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src \
        src/pulsarcast/wire/pulsarcast.proto
"""
