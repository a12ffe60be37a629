"""Genomes: a graph against its layers, and what is no feed-forward graph."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import FileError, LimitError, ModelError
from intarsia.limits import limited
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
    listed = genome(LINKS, a=["sin"])  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"unknown activation \['sin'\]"):
        Genome.from_json(listed)
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


def chain(length: int, *links: list[Any]) -> dict[str, Any]:
    """x leads through so many nodes to h; the last of them is listed first."""
    names = [f"c{k}" for k in range(length)]
    way = [[a, b, 1.0] for a, b in itertools.pairwise(["x", *names, "h"])]
    return genome([*way, *links], **dict.fromkeys(reversed(names), "sin"))


def test_the_memory_of_a_layout_is_counted_before_it_is_taken() -> None:
    deep = Genome.from_json(chain(99, *(["x", role, 1.0] for role in ("s", "v"))))
    parameters = deep.network().layout.parameters
    with limited(memory=4 * parameters):
        deep.network()
    with limited(memory=4 * parameters - 1), pytest.raises(LimitError, match="100 layers of 5"):
        deep.network()


def test_layers_that_are_too_many_or_too_wide_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = Genome.from_json(chain(600))
    monkeypatch.setattr(Genome, "_layers", None)  # they are never filled
    with pytest.raises(ModelError, match="has 601 layers: expected at most 512"):
        deep.network()
    monkeypatch.undo()
    monkeypatch.setattr("intarsia.sweetspot.genomes.WIDEST", 1)
    with pytest.raises(ModelError, match="more than 1 units of 'cache' in layer 1"):
        Genome.from_json(chain(3, ["y", "h", 1.0], ["d", "h", 1.0])).network()


class CountedName(str):
    """A name of a node that counts how often any of them is looked up."""

    lookups = 0

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()


def test_levels_are_found_in_one_walk_however_nodes_are_listed() -> None:
    way = chain(400)
    nodes = {CountedName(node["id"]): node["activation"] for node in way["nodes"]}
    links = tuple((CountedName(a), CountedName(b), w) for a, b, w in way["links"])
    CountedName.lookups = 0
    levels = Genome(nodes, links, ROLES).levels
    assert CountedName.lookups < 50 * 400  # node by node and round by round it is 400 ** 2
    assert [levels[f"c{k}"] for k in range(400)] == list(range(1, 401))
    ring = chain(400, ["c399", "c0", 1.0])
    with pytest.raises(ModelError, match="cycle through c"):
        Genome.from_json(ring)


def test_inputs_come_first_in_their_own_order() -> None:
    """Whatever the order of a set of texts is in this process."""
    assert list(Genome.from_json(genome(LINKS, a="sin")).levels)[:4] == ["x", "y", "d", "bias"]


def test_a_node_may_be_a_cache_itself() -> None:
    own = Genome.from_json(genome(LINKS, a="cache"))
    torch.testing.assert_close(own.network().image(5), own.image(5), atol=1e-5, rtol=0)
