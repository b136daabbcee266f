"""docs/architecture.md lists every file of every room, with what the file itself says it is for."""

from tests.docs.rooms import PAGE, ROOMS, ROOT, rewrite


def test_the_page_lists_every_file_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rewrite(text), "python -m tests.docs.rooms writes the tables anew"


def test_the_page_lists_every_room() -> None:
    source = ROOT / "src/pulsarcast"
    packages = [*source.glob("*/__init__.py"), *source.glob("protocol/*/__init__.py")]
    assert {path.parent.relative_to(source).as_posix() for path in packages} <= set(ROOMS)
