"""Genomes: a graph against its layers, and what is no feed-forward graph."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import FileError, ModelError
from intarsia.sweetspot import Genome, load_genome, read_genome
from intarsia.sweetspot.targets import PUBLISHED, available, published_picture

ROLES = {role: role for role in ("x", "y", "d", "bias", "h", "s", "v")}
KINDS = ("identity", "sin", "gaussian", "sigmoid", "relu", "tanh")


def genome(links: list[list[Any]], **nodes: str) -> dict[str, Any]:
    kinds = {**dict.fromkeys(ROLES, "identity"), **nodes}
    return {
        "nodes": [{"id": own, "activation": kind} for own, kind in kinds.items()],
        "links": links,
        "special": ROLES,
    }


LINKS = [["x", "a", 2.0], ["a", "h", 0.5], ["bias", "s", 0.7], ["y", "v", 0.9], ["a", "v", 0.3]]


def test_a_small_genome_by_hand() -> None:
    small = Genome.from_json(genome(LINKS, a="sin"))
    values = small.values(3)
    x = torch.tensor([-1.0, 0, 1]).repeat(3)
    y = torch.tensor([-1.0, 0, 1]).repeat_interleave(3)
    torch.testing.assert_close(values["v"], 0.9 * y + 0.3 * torch.sin(2 * x))
    assert small.levels["v"] == 2
    assert small.levels["s"] == 1
    network = small.network()
    # a, s and three copies in the first layer; the second holds h, v, and a copy of s
    assert network.layout.depth == 2
    assert dict(network.layout.blocks) == {"cache": 1, "identity": 2, "sin": 1}
    torch.testing.assert_close(network.image(9), small.image(9), atol=1e-5, rtol=0)


@given(st.data())
def test_layers_draw_what_the_graph_draws(data: st.DataObject) -> None:
    """Any graph whose links lead from earlier nodes to later ones."""
    hidden = [f"n{k}" for k in range(data.draw(st.integers(0, 7)))]
    order = ["x", "y", "d", "bias", *hidden, "v", "s", "h"]
    weight = st.floats(-2, 2, width=32)
    links = []
    for place, target in enumerate(order[4:], 4):
        sources = data.draw(st.lists(st.sampled_from(order[:place]), max_size=4))
        links += [[source, target, data.draw(weight)] for source in sources]
    kinds = {node: data.draw(st.sampled_from(KINDS)) for node in order[4:]}
    drawn = Genome.from_json(genome(links, **kinds))
    torch.testing.assert_close(drawn.network().image(5), drawn.image(5), atol=2e-3, rtol=0)


def test_a_node_that_leads_nowhere_is_left_out() -> None:
    links = [*LINKS, ["x", "dead", 1.0], ["dead", "deader", 1.0]]
    with_dead = Genome.from_json(genome(links, a="sin", dead="gaussian", deader="gaussian"))
    assert "gaussian" not in dict(with_dead.network().layout.blocks)


def test_a_cycle_is_named() -> None:
    links = [*LINKS, ["a", "b", 1.0], ["b", "c", 1.0], ["c", "a", 1.0]]
    with pytest.raises(ModelError, match=r"cycle through (\w -> ){3}\w: ") as error:
        Genome.from_json(genome(links, a="sin", b="sin", c="sin"))
    ring = str(error.value).partition("through ")[2].partition(":")[0].split(" -> ")
    assert ring[0] == ring[-1]
    assert all([a, b, 1.0] in links for a, b in itertools.pairwise(ring))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": [{"id": "x"}]}, "expected an id"),
        ({"nodes": [{"id": "a", "activation": "sin"}] * 2}, "twice"),
        ({"links": [["x", "a"]]}, "expected from, to"),
        ({"links": [["x", "nobody", 1.0]]}, "not there: 'nobody'"),
        ({"links": [["x", "a", float("nan")]]}, "weight"),
        ({"links": [["x", "a", "1"]]}, "weight"),
        ({"links": [["a", "x", 1.0]]}, "leads to an input"),
        ({"links": [["a", "a", 1.0]]}, "cycle through a -> a"),
        ({"special": {**ROLES, "y": "x"}}, "two roles"),
        ({"special": {**ROLES, "y": "why"}}, "no node 'why'"),
        ({"special": {"x": "x"}}, "which node is 'y'"),
        ({"special": []}, "ids by role"),
        ({"links": None}, "not a list"),
    ],
)
def test_what_is_no_genome_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Genome.from_json({**genome(LINKS, a="sin"), **change})
    with pytest.raises(ModelError, match="unknown activation 'sine': did you mean 'sin'"):
        Genome.from_json(genome(LINKS, a="sine"))


def test_genomes_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(genome(LINKS, a="sin")))
    assert read_genome(path).name == "mine"
    path.write_text("{")
    with pytest.raises(FileError, match=r"mine\.json is not a genome in JSON"):
        read_genome(path)
    path.write_text(json.dumps({"nodes": []}))
    with pytest.raises(FileError, match=r"mine\.json: genome 'mine' is not a mapping with"):
        read_genome(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_genomes_draw_their_pictures(name: str, cppn: Path) -> None:
    own = load_genome(name)
    assert name in available()
    picture = published_picture(name)
    for image in (own.image(256), own.network().image(256)):
        assert float((image - picture).square().mean()) <= 3e-5


def test_units_lie_in_an_order_that_no_hash_decides() -> None:
    genome = load_genome("totem")
    assert list(genome.levels)[:4] == ["x", "y", "d", "bias"]
    first = genome.network().weights[0][:3]  # the block cache: y, d and bias are handed on
    assert first.nonzero().tolist() == [[0, 1], [1, 2], [2, 3]]
