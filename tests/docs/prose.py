"""Counts habits of prose that make a reader stop, and finds where they are.

    python -m tests.docs.prose [--worst N] [--lower]

opens     of 100 sentences, those that open with Who, What or Where (or Whoever …) and ask nothing
unnamed   of 1,000 words, those that leave the actor without a name: whoever, somebody, nobody …
we        of 1,000 words, those that leave the node or its user without a name: we, our, us …

The first two are counted in the pages of `docs/` (without tables, headings and code), the third in
the docstrings of each room, and all three in the help texts of the command line.
`prose_ceilings.json` holds a ceiling for each figure; `test_prose.py` fails if a figure rises above
it. `--worst` prints the worst N sentences of each; `--lower` lowers the ceilings to the figures of
today, and raises none.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CEILINGS: Final = Path(__file__).with_name("prose_ceilings.json")
SENTENCE_WORDS_MIN: Final = 4
"""Fewer are a label or a cell, not a sentence."""

_OPENS: Final = re.compile(r"\W*(who|what|where)(ever)?\b", re.IGNORECASE)
_UNNAMED: Final = re.compile(
    r"\b(whoever|whatever|(some|no|any|every)body|(some|any|every)one|no one)\b", re.IGNORECASE
)
_WE: Final = re.compile(r"\b(we|our|us|ourselves)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][\w'-]*")
_LEFT_OUT: Final = re.compile(r"^ *```.*?^ *```$|^[#|][^\n]*$", re.DOTALL | re.MULTILINE)
_ITEM: Final = re.compile(r"\s*(?:[-*]|\d+\.) ")
_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[])")


class Sentence(NamedTuple):
    """One sentence, and where it begins."""

    file: str
    line: int
    text: str

    @property
    def words(self) -> int:
        return len(_WORD.findall(self.text))

    def counts(self, figure: str) -> int:
        """How often it does what the figure counts."""
        match figure:
            case "opens":
                asks = self.text.rstrip("*_) ").endswith("?")
                return int(self.is_whole and not asks and _OPENS.match(self.text) is not None)
            case "unnamed":
                return len(_UNNAMED.findall(self.text))
            case "we":
                return len(_WE.findall(self.text))
            case _:
                raise ValueError(figure)

    @property
    def is_whole(self) -> bool:
        return len(self.text.split()) >= SENTENCE_WORDS_MIN


class Text(NamedTuple):
    """Sentences that are counted together, and the figures that count for them."""

    name: str
    figures: tuple[str, ...]
    sentences: list[Sentence]

    def figure(self, figure: str) -> float:
        found = sum(each.counts(figure) for each in self.sentences)
        if figure == "opens":
            return 100 * found / max(1, sum(each.is_whole for each in self.sentences))
        return 1000 * found / max(1, sum(each.words for each in self.sentences))

    def worst(self, figure: str) -> list[Sentence]:
        """The sentences that it counts, those that do it most first."""
        found = [each for each in self.sentences if each.counts(figure)]
        return sorted(found, key=lambda each: (-each.counts(figure), each.file, each.line))


def texts(root: Path = ROOT) -> list[Text]:
    """All that is read: the pages, the docstrings of each room, the help texts."""
    pages = sorted(root.glob("docs/**/*.md"))
    pages += [root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    of_pages = [each for path in pages for each in page_sentences(path, root)]
    read = [Text("docs", ("opens", "unnamed"), of_pages)]
    helps: list[Sentence] = []
    for room in sorted(path for path in (root / "src/pulsarcast").iterdir() if path.is_dir()):
        said: list[Sentence] = []
        for path in sorted(room.rglob("*.py")):
            if "_pb2" not in path.name:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                name = str(path.relative_to(root))
                said += sentences_of(docstrings(tree), name)
                if room.name == "cli":
                    helps += sentences_of(help_texts(tree), name)
        if said:
            read.append(Text(f"docstrings of {room.name}", ("we",), said))
    read.append(Text("help texts", ("opens", "unnamed", "we"), helps))
    return read


def page_sentences(path: Path, root: Path) -> Iterator[Sentence]:
    text = path.read_text(encoding="utf-8")
    plain = _LEFT_OUT.sub(lambda found: "\n" * found[0].count("\n"), text)
    yield from sentences(plain, str(path.relative_to(root)), 1)


def sentences_of(found: Iterable[tuple[int, str]], file: str) -> Iterator[Sentence]:
    for line, text in found:
        yield from sentences(text, file, line)


def sentences(text: str, file: str, line: int) -> Iterator[Sentence]:
    """Every sentence of a text whose first line is `line`."""
    paragraphs: list[tuple[int, list[str]]] = [(line, [])]
    for number, each in enumerate(text.splitlines(), start=line):
        if not each.strip():
            paragraphs.append((number + 1, []))
        elif item := _ITEM.match(each):
            paragraphs.append((number, [each[item.end() :]]))
        else:
            paragraphs[-1][1].append(each)
    for number, written in paragraphs:
        paragraph, at = "\n".join(written), 0
        for part in _END.split(paragraph):
            at = paragraph.index(part, at)
            if part.strip():
                first = number + paragraph.count("\n", 0, at)
                yield Sentence(file, first, " ".join(part.split()))
            at += len(part)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Those of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass


def help_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What the command line prints of a command and of its options."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="help" | "short_help" | "epilog", value=value):
                for part in ast.walk(value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.lineno, part.value
            case ast.AnnAssign(target=ast.Name(id="COMMANDS"), value=ast.Dict(values=values)):
                for part in (each for value in values for each in ast.walk(value)):
                    if isinstance(part, ast.Constant) and " " in str(part.value):
                        yield part.lineno, str(part.value)
            case ast.FunctionDef(decorator_list=marks) if any(
                re.search(r"\.?(command|group)\b", ast.unparse(mark)) for mark in marks
            ):
                text = ast.get_docstring(node)
                if text:
                    yield node.body[0].lineno, text
            case _:
                pass


def figures(read: Iterable[Text]) -> dict[str, dict[str, float]]:
    """To one decimal, and never below what was counted."""
    return {
        text.name: {each: math.ceil(10 * text.figure(each) - 1e-9) / 10 for each in text.figures}
        for text in read
    }


def ceilings(read: Iterable[Text]) -> dict[str, dict[str, float]]:
    """The ceiling of every figure; 0 for a text that has none yet, such as a new room."""
    held: dict[str, dict[str, float]] = json.loads(CEILINGS.read_text(encoding="utf-8"))
    return {
        text.name: {each: held.get(text.name, {}).get(each, 0.0) for each in text.figures}
        for text in read
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    parser.add_argument("--lower", action="store_true")
    given = parser.parse_args()
    read = texts()
    counted, held = figures(read), ceilings(read)
    for text in read:
        for figure in text.figures:
            ceiling = held[text.name][figure]
            now = counted[text.name][figure]
            counted[text.name][figure] = min(now, ceiling)
            shown = [f"{text.name}, {figure}: {now} (ceiling {ceiling})"]
            shown += [
                f"  {it.file}:{it.line} {it.text}" for it in text.worst(figure)[: given.worst]
            ]
            sys.stdout.write("\n".join(shown) + "\n")
    if given.lower:
        CEILINGS.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
