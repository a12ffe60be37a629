"""What stands on the page: the figures in words, text escaped, errors as they are."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.plots import svg
from intarsia.studio import ModuleTile, Session
from intarsia.studio.answers import Answer
from intarsia.studio.encoder_inputs import EncodedInput
from intarsia.studio.ui.fragments import answer_rows, merged_bars, message, tile
from intarsia.studio.ui.views import SampleRequest, Selection, Views


@pytest.fixture
def views(session: Session) -> Views:
    return Views(session)


def test_the_whole_in_figures_and_what_a_switch_changed(views: Views, session: Session) -> None:
    both = Selection(("0", "3"), "sum", {})
    score = session.score(["0", "3"], "sum")
    shown = views.merged_view(both, None)
    assert f"{score.accuracy:.4f}" in shown.accuracy
    assert "Accuracy, classes that are on" in shown.accuracy
    assert "2 of 10 classes" in shown.accuracy
    assert "Entropy, classes that are off" in shown.entropy
    assert f"{score.entropy:.3f}" in shown.entropy
    assert "none yet" in shown.change
    assert "2 modules, sum" in shown.confusion
    assert shown.message == ""
    after = views.merged_view(replace(both, names=("0",)), shown.shown)
    assert "Last switch: 3 off" in after.change
    assert "<b>3</b>" in after.change
    # Compared with itself there is nothing to tell.
    assert "none yet" in views.merged_view(both, shown.shown).change


def test_an_error_blanks_the_figures_and_is_told_as_it_is(views: Views) -> None:
    before = views.merged_view(Selection(("0",), "sum", {}), None).shown
    off = views.merged_view(Selection((), "sum", {}), before)
    assert "no module is on: switch at least one on" in off.message
    assert re.search(r"class='big'>-<", off.accuracy)
    assert off.confusion == ""
    assert off.shown == ((), "sum")
    both = views.merged_view(Selection(("0", "3"), "sum", {}), off.shown)
    assert "Last switch: 0 and 3 on" in both.change
    every = Selection(views.session.names, "sum", {})
    assert "Last switch: all on" in views.merged_view(every, off.shown).change
    assert "Last switch: all off" in views.merged_view(replace(every, names=()), both.shown).change
    wrong = views.merged_view(Selection(("0",), "ties", {"density": "7"}), before)
    assert "density is 7.0: expected a fraction from 0 to 1" in wrong.message


def test_one_sample_with_a_class_taken_out_and_put_back(views: Views, session: Session) -> None:
    choice = Selection(session.names, "sum", {})
    result = views.sample_view(choice, SampleRequest(4), "")
    assert result.merged.count("<section") == 1
    assert result.each.count("class='answer'") == 3
    assert "Shown: test sample 4<" in result.picture
    assert f"class {session.catalogue[int(session.test.y[4])]}, 8 by 8 pixels" in result.picture
    less = views.sample_view(choice, SampleRequest(4), "3")
    assert "without module 3" in less.merged
    assert views.sample_view(choice, SampleRequest(4), "") == result
    off = views.sample_view(replace(choice, names=("0",)), SampleRequest(4), "3")
    assert off.merged.count("<section") == 1
    assert "no module that is on recognises &#x27;3&#x27;: it is out already" in off.message
    assert off.each.count("class='answer off'") == 2
    shared = views.sample_view(choice, SampleRequest(4), "8")
    assert "cannot be taken out alone" in shared.message
    assert (
        "give a whole number from 0 to 358"
        in views.sample_view(choice, SampleRequest(999), "").message
    )
    assert "draw again" in views.sample_view(choice, SampleRequest(0, "???"), "").message


def test_a_drawing_is_shown_as_the_network_sees_it(views: Views, session: Session) -> None:
    drawing = np.zeros((40, 40), np.uint8)
    drawing[5:35, 18:24] = 255
    text = base64.b64encode(drawing.tobytes()).decode()
    result = views.sample_view(Selection(session.names, "sum", {}), SampleRequest(0, text), "")
    assert "Shown: your drawing" in result.picture
    assert "as the network sees it, 8 by 8 pixels" in result.picture
    assert "data:image/png;base64," in result.picture
    assert "class='bar best'" in result.merged


def test_the_path_and_the_matrix(views: Views, session: Session) -> None:
    way = session.path("0", "3")
    assert f"{way.barrier:.2f}%" in views.path("0", "3")
    assert svg(way.figure()) in views.path("0", "3")
    assert f"Measured on 1,000 train and {len(session.test)} test samples" in views.path("0", "3")
    assert "needs two modules" in views.path("0", "0")
    table = views.matrix("cosine", ("3", "0"))
    assert table.count("<button") == 6
    assert table.count("aria-pressed='true'") == 2
    value = session.matrix()["cosine"][0, 1]
    assert f"aria-label='0 and 3: {value:.3f}'" in table
    alone = Views(Session([session["0"]], ia.load_data("digits")))
    assert "give at least two" in alone.matrix("cosine", None)


def test_names_are_text_not_html(bank: ia.Bank, digits: ia.Data) -> None:
    bad = "<script>alert('x')</script>"
    session = Session([replace(bank["0"], name=bad), bank["3"]], digits, rows=40)
    views = Views(session)
    choice = Selection(session.names, "sum", {})
    shown = views.merged_view(choice, ((bad,), "sum"))
    looked = views.sample_view(choice, SampleRequest(0), "0")
    pages = [*shown, *looked, message(bad)]
    pages += [views.matrix("cosine", (bad, "3"))]
    assert not [page for page in pages if isinstance(page, str) and "<script>" in page]


def test_a_row_of_a_table_is_shown_as_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(90, 20)).astype(np.float32)
    data = ia.load_data(x, np.arange(90) % 3)
    settings = {"sparsity": 0.0, "epochs": 1, "progress": False}
    views = Views(Session(ia.train(data, model="mlp(4)", **settings), data))
    assert views.scaler is None
    result = views.sample_view(Selection(views.session.names, "sum", {}), SampleRequest(0), "")
    assert f"{float(data.test.x[0, 0]):.3g}, " in result.picture
    assert "20 numbers" in result.picture


def test_features_are_no_picture_and_no_pad_is_for_them(feature_session: Session) -> None:
    views = Views(feature_session)
    assert views.scaler is None
    choice = Selection(feature_session.names, "logits", {})
    shown = views.sample_view(choice, SampleRequest(2), "").picture
    assert "7 features of custom TinyEncoder" in shown
    assert "<img" not in shown


def test_what_was_given_is_shown_and_answered_by_its_features(feature_session: Session) -> None:
    views = Views(feature_session)
    choice = Selection(feature_session.names, "logits", {})
    features = feature_session.test.x[4:5]
    expected = views.sample_view(choice, SampleRequest(4), "")
    pixels = torch.zeros(1, 3, 6, 5, dtype=torch.uint8)
    result = views.sample_view(choice, SampleRequest(4, given=EncodedInput(features, pixels)), "")
    assert "class='seen picture'" in result.picture
    assert "as the network sees it, 5 by 6 pixels" in result.picture
    assert result.each == expected.each
    probability = re.search(r"with 0.\d{3}", expected.merged)
    assert probability is not None
    assert probability[0] in result.merged
    assert "right" not in result.merged  # nobody knows its class
    text = EncodedInput(features, text="<script>alert('x')</script>")
    result = views.sample_view(choice, SampleRequest(4, given=text), "")
    assert "class='seen text'" in result.picture
    assert "<script>" not in result.picture


def test_an_answer_without_a_preference_is_not_told_as_one() -> None:
    even = Answer("3", ("3", "7"), np.array([0.49, 0.51]), 0.999)
    assert "not sure: 7 with 0.510" in merged_bars({"joined": even}, "3")
    assert "wrong" not in merged_bars({"joined": even}, "3")
    assert "none of mine" in answer_rows([even], ["3"])
    sure = replace(even, probabilities=np.array([0.1, 0.9]), entropy=0.47)
    assert ">7 with 0.900<" in merged_bars({"joined": sure}, "3")
    assert " wrong'" in merged_bars({"joined": sure}, "3")
    assert "7 0.90" in answer_rows([sure], ["3"])


def test_a_message_is_for_readers_of_the_page(bank: ia.Bank) -> None:
    with pytest.raises(ia.errors.CompositionError) as error:
        ia.compose([bank["0"], replace(bank["3"], origin="0a" * 32)], "sum")
    said = message(str(error.value))
    assert f"its origin is {'0a' * 6}..., not " in said
    assert "train both from one seed, align them, or join them by" in said


def test_a_tile_says_name_accuracy_and_density() -> None:
    card = ModuleTile("3-s0", ("3",), 0.9876, 0.99, 0.0512)
    assert tile(card) == "3-s0 (3)\n0.988 · 5.1% kept"
    assert tile(replace(card, name="3 (2)")).startswith("3 (2)\n")
    assert tile(replace(card, name="3", density=1.0)) == "3\n0.988 · 100% kept"


def test_entropy_through_the_layers_of_the_surest_modules(views: Views, session: Session) -> None:
    request, names = SampleRequest(4), session.names
    assert views.layers_view(False, request, names) == ""
    html = views.layers_view(True, request, names)
    x = session.test.x[4:5]
    surest = min(names, key=lambda name: float(session.lens(name).entropies(x)[-1]))
    lens = session.lens(surest)
    for layer, value in zip(lens.layers, lens.entropies(x)[:, 0].tolist(), strict=True):
        assert f"<li>module {surest}: {layer} {value:.3f}</li>" in html
    assert 'role="img"' in html
    assert session.lens(surest) is lens  # fitted once
    assert "switch at least one on" in views.layers_view(True, request, [])
    assert "whole number" in views.layers_view(True, SampleRequest(999), names)
    alone = views.layers_view(True, request, [names[0]])
    assert f"module {names[0]}: logits" in alone


def test_names_below_bars_are_whole() -> None:
    """The style sheet cuts them where there is less room, with an ellipsis."""
    answer = Answer("doubtful", ("doubtful", "rot wein"), np.array([0.9, 0.1]), 0.469)
    bars = merged_bars({"joined": answer}, None)
    assert "<span>doubtful</span>" in bars
    assert "<span>rot wein</span>" in bars
