"""VCube-PS, section 4: what its experiments claim, on the paper's own model and in small.

docs/figures-vcube.md has the paper's sizes, 40 seeds and all figures. These tests hold the claims
that the model confirms; that page says which figures do not come out, and which the model was
fitted to. Where chance decides, a claim is held against the mean of several seeds.
"""

from functools import cache
from statistics import fmean

import pytest

from pulsarcast.simulation.vcube.experiments import run
from pulsarcast.simulation.vcube.settings import Setting, System

HOP = 102  # t_t + t_pp + t_pc
SEED = 1
"""For what held with each of twenty seeds."""
SEEDS = range(1, 11)


@cache
def means(setting: Setting) -> dict[str, float]:
    """The mean of every figure over the seeds."""
    figures = [run(setting, seed) for seed in SEEDS]
    return {name: fmean(each[name] for each in figures) for name in figures[0]}


@pytest.mark.parametrize("dimension", [6, 8, 10])
def test_4_1_latency_grows_with_the_logarithm_of_the_nodes(dimension: int) -> None:
    """4.1: with all nodes subscribed, latency is always proportional to log2 N."""
    figures = run(Setting(experiment="publish", nodes=2**dimension), SEED)
    assert figures["latency_last"] == dimension * HOP
    assert figures["latency_mean"] == pytest.approx(dimension * HOP / 2, rel=0.05)


@pytest.mark.parametrize("dimension", [6, 8, 10])
def test_4_1_a_single_root_takes_one_hop_more_where_all_subscribe(dimension: int) -> None:
    """4.1: SRPT has an additional hop, as the message must first be sent to the root."""
    nodes = 2**dimension
    cube = run(Setting(experiment="publish", nodes=nodes), SEED)
    root = run(Setting(experiment="publish", nodes=nodes, system="srpt"), SEED)
    assert root["latency_last"] - cube["latency_last"] == HOP
    assert root["messages"] == cube["messages"] == nodes - 1


@pytest.mark.parametrize("nodes", [64, 256, 1024])
def test_4_1_without_forwarders_fewer_messages_arrive_sooner(nodes: int) -> None:
    """Figure 4, 25 % subscribers: no forwarder in the tree, 43 % fewer messages at 4096 nodes.

    The mean of ten seeds is 47, 44 and 42 % here; 43.0 % are of 4096 nodes and 40 seeds.
    """
    cube = means(Setting(experiment="publish", nodes=nodes, subscribers=0.25))
    root = means(Setting(experiment="publish", nodes=nodes, subscribers=0.25, system="srpt"))
    assert cube["false_positives"] == 0
    assert cube["messages"] == cube["deliveries"] == nodes // 4 - 1
    assert root["false_positives"] > 0
    assert cube["messages"] < 0.6 * root["messages"]
    assert cube["latency_mean"] < 0.75 * root["latency_mean"]


def all_publish(nodes: int, system: System) -> dict[str, float]:
    return run(Setting(experiment="publish", nodes=nodes, publishers=1.0, system=system), SEED)


def test_4_2_a_single_root_saturates_where_all_publish_and_a_cube_does_not() -> None:
    """4.2: one hop more up to 128 nodes; at 256 2.48 times as long, growing from there."""
    small = {system: all_publish(128, system)["latency_mean"] for system in ("vcube", "srpt")}
    large = {system: all_publish(256, system)["latency_mean"] for system in ("vcube", "srpt")}
    assert small["srpt"] - small["vcube"] < 1.5 * HOP
    assert large["srpt"] == pytest.approx(2.48 * large["vcube"], rel=0.1)
    alone = run(Setting(experiment="publish", nodes=256), SEED)["latency_mean"]
    assert large["vcube"] == pytest.approx(alone, rel=0.02), "messages take different paths"


def test_table_1_a_cube_shares_the_load_that_a_single_root_bears() -> None:
    """Table 1: half of SRPT's nodes route nothing and the root all; VCube-PS' nodes are alike."""
    cube, root = all_publish(256, "vcube"), all_publish(256, "srpt")
    assert root["nodes_queue_0"] == 128
    assert cube["nodes_queue_0"] == 0
    assert cube["nodes_queue_4"] == 256, "all of them in (2, 4]"
    assert root["queue_root_max"] > 50 * cube["queue_longest"]


def test_figure_6_barriers_stay_small_and_grow_with_what_is_waited_for() -> None:
    """4.3: half of the messages have fewer than 5 direct dependencies; more when 10 are awaited."""
    after_one = means(Setting(experiment="order", nodes=64))
    after_ten = means(Setting(experiment="order", nodes=64, first_messages=10))
    assert after_one["barrier_below_5_percent"] > 50
    assert after_ten["barrier_10_percent"] > 3 * after_one["barrier_10_percent"]
    assert after_ten["barrier_mean"] > after_one["barrier_mean"]
    assert after_ten["barrier_max"] < 32, "far from one entry a node, as a vector clock has"


def churn(system: System, session_s: float | None) -> dict[str, float]:
    setting = Setting(experiment="churn", nodes=64, members=48, session_s=session_s, system=system)
    return means(setting)


def test_4_5_a_cube_has_forwarders_only_while_members_come_and_go() -> None:
    """4.5: static membership induces no false positives; with churn forwarders are temporary."""
    assert churn("vcube", None)["false_positive_percent"] == 0
    some, many = churn("vcube", 60.0), churn("vcube", 5.0)
    assert 0 < some["false_positive_percent"] < many["false_positive_percent"]
    assert churn("srpt", None)["false_positive_percent"] > many["false_positive_percent"]


def test_4_5_more_churn_makes_a_cube_slower() -> None:
    """Figure 8: up to 10 % at usual rates, more where the churn rate increases 10 times.

    The paper's 2.55 times is of 1000 members; 48 come to some 1.6.
    """
    static, some, many = (churn("vcube", each)["latency_mean"] for each in (None, 60.0, 5.0))
    assert some < 1.1 * static
    assert many > 1.3 * some


def test_4_6_fewer_brokers_have_a_shorter_tree_and_more_contention() -> None:
    """Figure 9: Tree falls and B-S rises with fewer brokers; VCube-PS is below most of them.

    The paper has VCube-PS below all. With 4 brokers of 512 nodes the two are alike (463 and a mean
    of 473 u.t., seeds on both sides); the page has 4096 nodes. Finding: with brokers for half of
    the nodes, SRPT-B is above SRPT-S here, by the hop to its subscriber; the paper has it below.
    """
    usual = {"experiment": "publish", "nodes": 512, "messages": 32}
    few, some, many = (
        run(Setting(**usual, system="brokers", brokers=count), SEED)  # type: ignore[arg-type]
        for count in (4, 32, 256)
    )
    assert few["latency_tree"] < some["latency_tree"] < many["latency_tree"]
    assert few["latency_broker"] > some["latency_broker"] > many["latency_broker"]
    cube = run(Setting(**usual), SEED)  # type: ignore[arg-type]
    assert all(cube["latency_mean"] < each["latency_mean"] for each in (some, many))
    alone = run(Setting(**usual, system="srpt"), SEED)  # type: ignore[arg-type]
    assert many["latency_mean"] > alone["latency_mean"]
