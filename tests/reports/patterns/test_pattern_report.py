"""The report of pattern networks holds their scores, all maps and the strongest sweeps."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle

from intarsia.errors import DataError, StudyError
from intarsia.reports import Report, pattern_report, report
from intarsia.sweetspot import (
    PatternBank,
    connections,
    distinct_maps,
    inflation,
    initial_bank,
    load_network,
)

from ..reading import lines, part, words


@pytest.fixture(scope="module")
def made() -> Report:
    return pattern_report("totem", weights=6, sweeps=3)


def test_the_page_is_sound_and_says_what_was_measured(
    made: Report, read_page: Callable[[str], Any]
) -> None:
    assert read_page(made.html).problems == []
    totem = load_network("totem")
    maps, score = distinct_maps(totem), inflation(totem, weights=6)
    assert f"{totem.nonzero} of {totem.layout.parameters} weights" in words(
        part(made.html, "summary")
    )
    scores = words(part(made.html, "scores"))
    assert f"{score.median:.3f}" in scores
    assert f"{len(score.ratios)} of 6" in scores
    assert f"{maps.count} of {maps.total}" in scores
    assert lines(made.html)[0] == "intarsia sweetspot studio totem"
    assert score.encoder in made.html


def test_the_atlas_has_all_maps_and_frames_the_new_ones(made: Report) -> None:
    totem = load_network("totem")
    (ax,) = made.figures["maps"].axes
    assert len(ax.images) == totem.layout.width * totem.layout.depth
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert len(frames) == distinct_maps(totem).count


def test_sweeps_are_of_the_strongest_weights_of_layers_from_first_to_last(made: Report) -> None:
    totem = load_network("totem")
    (ax,) = made.figures["sweeps"].axes
    rows = [text.get_text() for text in ax.get_yticklabels()]
    strongest = [connections(totem, layer)[0].place for layer in (0, 3, totem.layout.depth)]
    assert rows == [",".join(map(str, place)) for place in strongest]
    assert len(ax.images) == 5 * 3
    assert "sweeps" not in pattern_report("totem", weights=2, sweeps=0).figures


def test_a_bank_is_shown_by_its_losses(tmp_path: Path, read_page: Callable[[str], Any]) -> None:
    bank = initial_bank(load_network("totem").layout, 14)
    losses = (0.3, math.nan, *(0.2 - n / 100 for n in range(12)))
    replace(bank, losses=losses).save(tmp_path / "bank.safetensors")
    page = pattern_report(tmp_path / "bank.safetensors", weights=2, sweeps=1)
    assert read_page(page.html).problems == []
    scores = words(part(page.html, "scores"))
    assert "those of the lowest loss of 14" in scores
    assert "9.00e-02" in scores  # the lowest
    assert "3.00e-01" not in scores
    best = PatternBank.load(tmp_path / "bank.safetensors").names[-1]
    assert f"What every unit of {best} draws" in words(part(page.html, "maps"))
    assert len(page.figures["pictures"].axes[0].images) == 12


def test_names_are_escaped_and_pictures_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    named = replace(load_network("totem"), name="<script>alert(1)</script>")
    assert "<script>alert" not in pattern_report(named, weights=2, sweeps=1).html
    picture = image.new("RGB", (8, 8))
    picture.putpixel((1, 1), (255, 0, 0))
    picture.save(tmp_path / "a.png")
    with pytest.raises(DataError, match="is a picture, not a network"):
        pattern_report(tmp_path / "a.png")


def test_the_report_of_anything_knows_pattern_networks(tmp_path: Path) -> None:
    totem = load_network("totem")
    totem.save(tmp_path / "totem.safetensors")
    assert 'id="sweeps"' in report([tmp_path / "totem.safetensors"]).html
    for given in ({"rows": 3}, {"study": "pairs"}, {"data": "digits"}):
        with pytest.raises(StudyError, match="pattern networks takes no"):
            report(totem, **given)
