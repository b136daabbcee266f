"""Whether a type checker knows the type of everything public.

    pyright --verifytypes pulsarcast --ignoreexternal --outputjson > types.json
    python benchmarks/public_types.py < types.json

Reads what pyright says of the installed package, prints how much of all modules it knows, and every
name of `pulsarcast`, `pulsarcast.client` and what they are made of that it does not; ends with 1 if
there is any. pyright is not among our tools: install it somewhere else, and put an environment with
the wheel and its extra `all` first on PATH (docs/releasing.md).
"""

from __future__ import annotations

import json
import sys

PUBLIC = ("pulsarcast.client.", "pulsarcast.model.", "pulsarcast.network.node.",
          "pulsarcast.network.subscriptions.")  # fmt: skip


def main() -> None:
    """Read, print, judge."""
    found = json.load(sys.stdin)["typeCompleteness"]
    counts = found["exportedSymbolCounts"]
    known = counts["withKnownType"]
    if not known:
        sys.exit("pyright did not find the package: is its environment first on PATH?")
    print(
        f"all modules: {known} of {sum(counts.values())} names ({found['completenessScore']:.1%})"
    )
    public = [each for each in found["symbols"] if each["isExported"] and is_public(each["name"])]
    unknown = [each for each in public if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
    print(f"public: {len(public) - len(unknown)} of {len(public)} names")
    for each in unknown:
        print(f"  {each['name']}: {'; '.join(told['message'] for told in each['diagnostics'])}")
    sys.exit(1 if unknown else 0)


def is_public(name: str) -> bool:
    """Whether a program may use it, or gets it from what it uses."""
    return name.startswith(PUBLIC) or name.count(".") == 1


if __name__ == "__main__":
    main()
