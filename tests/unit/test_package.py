from importlib.metadata import version

import pulsarcast


def test_the_package_and_its_metadata_agree_on_the_version() -> None:
    assert pulsarcast.__version__ == version("pulsarcast")
