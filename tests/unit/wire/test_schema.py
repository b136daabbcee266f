from pathlib import Path

import pytest

from pulsarcast.wire import pulsarcast_pb2 as pb

FOLDER = Path(pb.__file__).parent
SOURCE = FOLDER.parent.parent


@pytest.mark.parametrize("schema", ["pulsarcast", "libp2p"])
def test_the_generated_code_is_what_the_schema_generates(tmp_path: Path, schema: str) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    well_known = Path(protoc.__file__).parent / "_proto"
    outcome = protoc.main(
        [
            "protoc",
            f"-I{SOURCE}",
            f"-I{well_known}",
            f"--python_out={tmp_path}",
            f"--pyi_out={tmp_path}",
            str(FOLDER / f"{schema}.proto"),
        ]
    )
    assert outcome == 0
    for name in (f"{schema}_pb2.py", f"{schema}_pb2.pyi"):
        made = (tmp_path / "pulsarcast" / "wire" / name).read_text()
        assert made == (FOLDER / name).read_text(), f"{name}: see pulsarcast/wire/__init__.py"


def test_no_field_number_is_used_twice_and_none_is_wider_than_it_looks() -> None:
    # Protocol Buffers cuts a 32-bit field's varint short without a word: 2^32 + 1 would be 1.
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        numbers = [field.number for field in message.fields]
        assert len(numbers) == len(set(numbers))
        for field in message.fields:
            assert field.type not in {field.TYPE_INT32, field.TYPE_UINT32, field.TYPE_SINT32}


def test_fields_of_messages_have_tags_of_one_byte() -> None:
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        if message.name != "Frame":
            assert all(field.number < 16 for field in message.fields)
