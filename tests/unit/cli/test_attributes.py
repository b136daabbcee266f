"""A topic's schema from the command line and over HTTP."""

import click
import pytest

from pulsarcast.cli.topics import attribute_rule
from pulsarcast.model import api
from pulsarcast.model.topics import AttributeRule, TopicSettings


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("price=float:0:100", ("price", "float", 0.0, 100.0)),
        ("price=float:0:", ("price", "float", 0.0, None)),
        ("number=int::-5", ("number", "int", None, -5)),
        ("symbol=str", ("symbol", "str", None, None)),
        ("sensor=str:s-0:s-9", ("sensor", "str", "s-0", "s-9")),
        ("a=b=bool", ("a=b", "bool", None, None)),
    ],
)
def test_an_attribute_is_given_as_name_type_and_bounds(
    text: str, rule: tuple[str, api.AttributeType, float | str | None, float | str | None]
) -> None:
    assert attribute_rule(text) == api.AttributeRuleView(*rule)


@pytest.mark.parametrize(
    "text",
    [
        "price",
        "=float",
        "price=double",
        "price=float:0",
        "price=float:a:b",
        "n=int:1.5:",
        "p=float:nan:",
    ],
)
def test_what_is_no_attribute_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="NAME=TYPE"):
        attribute_rule(text)


def test_a_schema_stays_as_it_is_unless_another_is_given() -> None:
    base = TopicSettings(attributes=(AttributeRule("price", "float", 0, 100),))
    assert api.settings_from(api.SettingsView(), base).attributes == base.attributes
    assert api.settings_from(api.settings_view(base), TopicSettings()).attributes == base.attributes
    none = api.settings_from(api.SettingsView(attributes=[]), base)
    assert none.attributes == ()
