from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["libp2p"] = None  # as if it were not installed
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.contestants.contestants import CONTESTANTS, load
for name in CONTESTANTS:
    try:
        load(name)
    except LocalError as error:
        print(error)
    else:
        print(name, "is there")
"""


def test_only_what_we_compare_with_needs_more_and_it_says_what() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    ours, *others = found.stdout.decode().splitlines()
    assert ours == "ours is there"
    assert [line.split(":")[0] for line in others] == [
        "floodsub needs more",
        "gossipsub needs more",
        "bare needs more",
    ]
    assert all("pip install 'pulsarcast[baselines]'" in line for line in others)
