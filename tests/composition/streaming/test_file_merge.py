"""Files merged tensor by tensor are what compose makes of the same tensors, also after a kill."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition.operators.changes.dare import draw
from intarsia.composition.operators.changes.ties import Ties, join
from intarsia.composition.streaming import file_merge, shards
from intarsia.composition.streaming.tensor_files import StoredTensor, TensorFiles
from intarsia.errors import (
    CompositionError,
    FileError,
    FileWarning,
    IntarsiaError,
    LimitError,
    RecipeError,
)
from intarsia.specs import Spec
from small_files import llama_states, read_model, write_model
from unusable_settings import UNUSABLE

MODELS = ("a", "b", "c")


class Net(nn.Module):
    """Tensors of several ranks, and a normalisation with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


def net_states() -> dict[str, dict[str, Tensor]]:
    states = {}
    for place, name in enumerate(("base", *MODELS)):
        torch.manual_seed(0)
        state = {k: t.clone() for k, t in Net().state_dict().items()}
        draws = torch.Generator().manual_seed(place)
        for tensor in state.values():
            if tensor.is_floating_point() and place:
                tensor += 0.2 * torch.rand(tensor.shape, generator=draws)
        state["norm.num_batches_tracked"] += place
        states[name] = state
    return states


def composed(states: Mapping[str, Mapping[str, Tensor]], operator: str) -> Mapping[str, Tensor]:
    """The same by modules in memory, as changes of a base."""
    base = ia.Base(states["base"])
    modules = []
    for place in MODELS:
        network = Net()
        network.load_state_dict(states[place])
        made = ia.Module.of(
            network, rewarded=place, catalogue=list("abcd"), name=place, shape=(1, 4, 4), base=base
        )
        modules.append(made)
    joined = ia.compose(modules, operator, recalibrate=False).joined
    assert joined is not None
    return joined.state


def paths(folder: Path, states: Mapping[str, Any], **options: Any) -> dict[str, Path]:
    return {name: write_model(folder / name, state, **options) for name, state in states.items()}


@pytest.mark.parametrize(
    "operator",
    [
        "sum",
        "mean",
        "weighted(weights={'a': 0.2, 'b': 0.7}, normalise=True)",
        "task_arithmetic(scale=0.4)",
        "ties(preset='mergekit', density=0.4)",
        "ties(preset='mergekit')",
        "ties(preset='peft', density=0.3, base='zero')",
        "dare(preset='mergekit', density=1.0, consensus='ties')",
        "multislerp(base='zero')",
        "della(preset='mergekit', density=0.6)",
        "della(base='zero', consensus='sum')",
        "breadcrumbs(density=0.5, consensus='ties')",
        "sce",
        "model_stock(by_unit=True)",
        "karcher(base='origin', weights={'a': 2})",
        "breadcrumbs(density=0.6, gamma=0.2)",
        "della(seed=3)",
        "ties(preset='mergekit', density={'a': 0.4, 'b': 0.0})",
        "breadcrumbs(density={'a': 0.2, 'b': 0.8}, gamma=0.1)",
        "della(preset='mergekit', density={'a': 0.3}, epsilon=0.2)",
        "sce(density=0.5)",
        "tsvm",
        "iso_c",
        "model_stock",
        "multislerp",
        "karcher",
    ],
)
def test_files_join_as_modules_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setattr(file_merge, "PIECE", 5)
    states = net_states()
    places = paths(tmp_path, states, shards=2)
    base = places.pop("base")
    ia.merge_files(places, tmp_path / "out", operator, base=base)
    result, expected = read_model(tmp_path / "out"), composed(states, operator)
    assert result.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(result[name], tensor, msg=lambda m, n=name: f"{n}: {m}")


def test_equals_are_trimmed_across_pieces_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bfloat16 many changes are of one size; the earlier stay, whatever piece they are in."""
    monkeypatch.setattr(file_merge, "PIECE", 7)
    draws = torch.Generator().manual_seed(0)
    base = {"w": torch.zeros(20, 10).bfloat16()}
    states = {
        name: {"w": torch.randint(-3, 4, (20, 10), generator=draws).bfloat16()} for name in "ab"
    }
    places = paths(tmp_path, {"base": base, **states})
    for density in (0.01, 0.3, 0.5, 0.95):
        how = Ties(density, "tensor", "some", "mass", "positive", "before", "sum", 1.0)
        vectors = [state["w"].double().flatten() for state in states.values()]
        expected = join(vectors, [1.0, 1.0], [200], how)
        out = tmp_path / str(density)
        ia.merge_files(
            [places["a"], places["b"]],
            out,
            f"ties(preset='mergekit', reduce='sum', density={density})",
            base=places["base"],
        )
        assert torch.equal(read_model(out)["w"].double().flatten(), expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(tmp_path: Path, threads: int) -> None:
    before = torch.get_num_threads()
    places = paths(tmp_path, llama_states("a", "b"))
    files, base = [places["a"], places["b"]], places["base"]
    operator = "della(preset='mergekit', density=0.6)"
    ia.merge_files(files, tmp_path / "one", operator, base=base)
    try:
        torch.set_num_threads(threads)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_merge, "PIECE", 16)
            ia.merge_files(files, tmp_path / "many", operator, base=base)
    finally:
        torch.set_num_threads(before)
    one, many = read_model(tmp_path / "one"), read_model(tmp_path / "many")
    for name, tensor in one.items():
        torch.testing.assert_close(many[name], tensor)


def test_what_a_trim_would_hide_is_refused(tmp_path: Path) -> None:
    """NaN is no entry that is largest; it must not be dropped without a word."""
    base = {"w": torch.zeros(10), "norm.running_mean": torch.zeros(2)}
    bad = {**base, "w": torch.arange(10.0)}
    bad["w"][3] = torch.nan
    places = paths(tmp_path, {"base": base, "good": {**base, "w": torch.ones(10)}, "bad": bad})
    files = [places["good"], places["bad"]]
    trimmed = "ties(preset='mergekit', density=0.5)"
    for place, operator in enumerate((trimmed, "breadcrumbs", "karcher", "tsvm")):
        with pytest.raises(CompositionError, match="'w' of model 'bad' holds values that are not"):
            ia.merge_files(files, tmp_path / f"out{place}", operator, base=places["base"])
    with pytest.raises(CompositionError, match="'w' of model 'base'"):
        ia.merge_files(files[:1], tmp_path / "other", "task_arithmetic", base=places["bad"])
    worse = write_model(
        tmp_path / "worse", {**base, "norm.running_mean": torch.full((2,), torch.inf)}
    )
    with pytest.raises(CompositionError, match=r"'norm.running_mean' of model 'worse'"):
        ia.merge_files([places["good"], worse], tmp_path / "third", "mean")


def test_a_model_that_is_written_to_meanwhile_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    write = shards.MergeFolder.write

    def touched(self: Any, shard: Any, pieces: Any) -> None:
        write(self, shard, pieces)
        os.utime(places["a"] / "model.safetensors", ns=(1, 1))

    monkeypatch.setattr(shards.MergeFolder, "write", touched)
    with pytest.raises(FileError, match="was written to while it was read"):
        ia.merge_files([places["a"], places["b"]], tmp_path / "out", "mean")
    with pytest.raises(FileError, match="is a merge that is not finished"):
        ia.merge_files([tmp_path / "out"], tmp_path / "next", "mean")


def test_a_config_says_the_type_that_is_written(tmp_path: Path) -> None:
    """Types are those of the first model by name, the config that of the first given."""
    wide, narrow = torch.ones(2, 2), torch.ones(2, 2).bfloat16()
    places = paths(tmp_path, {"a": {"w": narrow}, "b": {"w": wide}})
    for name, dtype in (("a", "bfloat16"), ("b", "float32")):
        (places[name] / "config.json").write_text(json.dumps({"torch_dtype": dtype}))
    ia.merge_files([places["b"], places["a"]], tmp_path / "out", "mean")
    assert read_model(tmp_path / "out")["w"].dtype == torch.bfloat16
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16"


def test_a_draw_goes_on_from_tensor_to_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DARE drops by the place in all tensors in the order of names, in whatever pieces."""
    monkeypatch.setattr(file_merge, "PIECE", 5)
    base = {"v": torch.zeros(7), "w": torch.zeros(3, 4)}
    model = {name: torch.ones_like(tensor) for name, tensor in base.items()}
    places = paths(tmp_path, {"base": base, "m": model})
    ia.merge_files([places["m"]], tmp_path / "out", "dare(density=0.5)", base=places["base"])
    result = read_model(tmp_path / "out")
    expected = draw("m", 19, 0.5, 0).double() * 2
    assert torch.equal(torch.cat([result["v"], result["w"].flatten()]).double(), expected)
    both = {"m": places["m"], "n": places["m"]}
    ia.merge_files(both, tmp_path / "two", "dare(density={'m': 0.5})", base=places["base"])
    result = read_model(tmp_path / "two")
    expected += 1  # of the other all stays
    assert torch.equal(torch.cat([result["v"], result["w"].flatten()]).double(), expected)


def test_types_are_kept_or_chosen(tmp_path: Path) -> None:
    state = {"w": torch.randn(3, 4).bfloat16(), "ids": torch.arange(4)}
    places = paths(tmp_path, {"a": state, "b": state})
    ia.merge_files(list(places.values()), tmp_path / "kept", "mean")
    kept = read_model(tmp_path / "kept")
    assert all(torch.equal(kept[name], state[name]) for name in state)
    ia.merge_files(list(places.values()), tmp_path / "wide", "mean", dtype="float32")
    wide = read_model(tmp_path / "wide")
    assert (wide["w"].dtype, wide["ids"].dtype) == (torch.float32, torch.int64)
    config = json.loads((tmp_path / "wide" / "config.json").read_text())
    assert config["torch_dtype"] == "float32"


def test_shards_hold_at_most_their_size_and_have_an_index(tmp_path: Path) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    (places["base"] / "tokenizer.json").write_text("{}")
    (places["base"] / "modeling.py").write_text("code is not copied")
    files = [places["a"], places["b"]]
    made = ia.merge_files(files, tmp_path / "out", "mean", base=places["base"], shard_size=2000)
    assert len(made.files) > 2
    assert made.kept == 0
    assert made.parameters == sum(t.numel() for t in read_model(places["a"]).values())
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(made.files)
    for name in made.files:
        assert sum(t.nbytes for t in TensorFiles(tmp_path / "out" / name).tensors.values()) <= 2000
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names - set(made.files) == {
        "config.json", "tokenizer.json", "model.safetensors.index.json", "intarsia_merge.json",
    }  # fmt: skip
    # what was made can be merged in turn
    ia.merge_files([tmp_path / "out", places["a"]], tmp_path / "next", "mean")


def test_a_killed_merge_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    files, base = [places["a"], places["b"]], places["base"]

    def merge(out: str) -> ia.FileMerge:
        return ia.merge_files(files, tmp_path / out, "ties(preset='mergekit')", base=base,
                              shard_size=2000)  # fmt: skip

    merge("whole")
    write, count = shards.MergeFolder.write, 0

    def killed(self: Any, shard: Any, pieces: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            (self.path / f".{'0' * 16}.part").write_bytes(b"half")
            raise KeyboardInterrupt
        write(self, shard, pieces)

    monkeypatch.setattr(shards.MergeFolder, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        merge("out")
    monkeypatch.undo()
    out = tmp_path / "out"
    with pytest.raises(FileError, match="has neither"):
        ia.merge_files([out], tmp_path / "other", "mean")
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("model-*")}
    assert len(before) == 2
    assert merge("out").kept == 2
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert _digests(out) == _digests(tmp_path / "whole")
    assert not list(out.glob(".*"))
    done = merge("out")
    assert done.kept == len(done.files)
    first = out / done.files[0]
    first.write_bytes(first.read_bytes()[:-1] + b"\x01")
    with pytest.warns(FileWarning, match="made again"):
        assert merge("out").kept == len(done.files) - 1
    assert _digests(out) == _digests(tmp_path / "whole")


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_another_merge_does_not_go_on(tmp_path: Path) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    files = [places["a"], places["b"]]
    ia.merge_files(files, tmp_path / "out", "mean")
    for other in ({"operator": "sum"}, {"dtype": "float16"}, {"shard_size": 2000}):
        with pytest.raises(FileError, match="holds another merge"):
            ia.merge_files(files, tmp_path / "out", **{"operator": "mean", **other})  # type: ignore[arg-type]
    os.utime(places["a"] / "model.safetensors", ns=(1, 1))
    with pytest.raises(FileError, match="holds another merge"):
        ia.merge_files(files, tmp_path / "out", "mean")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    with pytest.raises(FileError, match=r"holds mine\.txt already"):
        ia.merge_files(files, tmp_path / "full", "mean")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_a_merge_that_is_an_input_is_checked_by_its_digests(tmp_path: Path) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    ia.merge_files([places["a"], places["b"]], tmp_path / "out", "mean")
    file = tmp_path / "out" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(FileError, match="not what was written"):
        ia.merge_files([tmp_path / "out"], tmp_path / "next", "mean")


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    good = {"w": torch.ones(2, 3), "ids": torch.arange(3)}
    bad = {
        "lacks": ({"ids": good["ids"]}, "lacks the tensor 'w'"),
        "more": ({**good, "x": torch.ones(1)}, "lacks the tensor 'x'"),
        "shape": ({**good, "w": torch.ones(3, 2)}, r"'w' is \(3, 2\)"),
        "kind": ({**good, "w": torch.ones(2, 3).long()}, "'w' is .*int64"),
        "narrow": ({**good, "ids": torch.arange(3, dtype=torch.int8)}, "'ids' is .*int8"),
        "flags": ({**good, "ids": torch.arange(3) > 0}, "'ids' is .*bool"),
        "ids": ({**good, "ids": torch.arange(3) + 1}, "'ids' holds integers that differ"),
        "nan": ({**good, "w": torch.full((2, 3), torch.nan)}, "'w' of model 'nan'"),
    }
    first = write_model(tmp_path / "good", good)
    for name, (state, message) in bad.items():
        other = write_model(tmp_path / name, state)
        with pytest.raises(CompositionError, match=message):
            ia.merge_files([first, other], tmp_path / f"out-{name}", "mean")
    large = write_model(tmp_path / "large", {**good, "w": torch.full((2, 3), 1e6)})
    with pytest.raises(CompositionError, match="choose another dtype"):
        ia.merge_files([first, large], tmp_path / "half", "sum", dtype="float16")


def test_settings_that_cannot_be_used_write_nothing(tmp_path: Path) -> None:
    places = paths(tmp_path, llama_states("a", "b"))
    files, out = [places["a"], places["b"]], tmp_path / "out"
    as_a_whole = ["logits", "ties", "sum(affine='mean')", "dare(consensus='ties')"]
    refused = dict.fromkeys(as_a_whole, "does not join one tensor after another") | UNUSABLE
    refused |= {
        "task_arithmetic(scale='auto')": "samples",
        "task_arithmetic": "give base=",
        "weighted(weights={'z': 1})": "weights has 'z'",
        "breadcrumbs(density={'z': 1})": "density has 'z'",
        "weighted(weights={'a': -1, 'b': 1}, normalise=True)": "add up to 0",
        "slerp(t=2)": "t is 2",
    }
    for operator, message in refused.items():
        with pytest.raises(IntarsiaError, match=message):
            ia.merge_files(files, out, operator)
    with pytest.raises(RecipeError, match="dtype is 'float12'"):
        ia.merge_files(files, out, "mean", dtype="float12")
    with pytest.raises(RecipeError, match="shard_size is 'many'"):
        ia.merge_files(files, out, "mean", shard_size="many")
    with pytest.raises(RecipeError, match="at most 2 models"):
        ia.merge_files(dict.fromkeys("xyz", places["a"]), out, "slerp")
    with pytest.raises(RecipeError, match="two models are called 'a'"):
        ia.merge_files([places["a"], places["a"]], out)
    with pytest.raises(RecipeError, match="two models are called '1'"):
        ia.merge_files({1: places["a"], "1": places["b"]}, out)  # type: ignore[dict-item]
    with pytest.raises(RecipeError, match="models is"):
        ia.merge_files([], out)
    with pytest.raises(RecipeError, match="models has 3: expected paths"):
        ia.merge_files([3], out)  # type: ignore[list-item]
    assert not out.exists()


def test_tensors_may_have_operators_of_their_own(tmp_path: Path) -> None:
    """Each as if all were joined by it, whatever it reads and in pieces of whichever kind."""
    states = llama_states("a", "b")
    places = paths(tmp_path, states)
    files, base = [places["a"], places["b"]], places["base"]
    others = {
        "lm_head.weight": "multislerp(base='zero')",
        "model.layers.0.mlp.up_proj.weight": "ties(preset='mergekit', density=0.3)",
        "model.layers.1.self_attn.q_proj.weight": "tsvm",
        "model.norm.weight": {"name": "model_stock", "by_unit": True},
    }
    made = ia.merge_files(files, tmp_path / "out", "mean", by_tensor=others, base=base)
    assert made.operators == 1 + len(others)
    joined = read_model(tmp_path / "out")
    usual = ia.merge_files(files, tmp_path / "usual", "mean", base=base)
    assert usual.operators == 1
    expected = read_model(tmp_path / "usual")
    for place, (name, operator) in enumerate(others.items()):
        ia.merge_files(files, tmp_path / f"{place}", operator, base=base)
        expected[name] = read_model(tmp_path / f"{place}")[name]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in joined.items())
    merge = json.loads((tmp_path / "out" / shards.MANIFEST).read_text())["merge"]
    assert [each["tensors"] for each in merge["by_tensor"]] == [[name] for name in others]


def test_operators_of_tensors_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    state = {"w": torch.ones(2, 3), "ids": torch.arange(3)}
    files = {name: write_model(tmp_path / name, state) for name in "abc"}
    for by_tensor, message in {
        ("v", "mean"): "has the tensor 'v', and there is none.*known: w",
        ("ids", "mean"): "has the tensor 'ids', and no operator joins",
        ("w", "meen"): "did you mean 'mean'",
        ("w", "slerp"): "joins at most 2 models",
        ("w", "ties"): "does not join one tensor after another",
        ("w", "task_arithmetic"): "give base=",
        ("w", "weighted(weights={'z': 1})"): "weights has 'z'",
    }.items():
        with pytest.raises(IntarsiaError, match=message):
            ia.merge_files(files, tmp_path / "out", "mean", by_tensor=dict([by_tensor]))
    with pytest.raises(RecipeError, match="by_tensor is 3: expected a mapping"):
        ia.merge_files(files, tmp_path / "out", "mean", by_tensor=3)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_an_input_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    """A merge does not go on with half of its shards from other weights."""
    states = llama_states("a", "b")
    places = paths(tmp_path, states)
    file = places["a"] / "model.safetensors"
    os.utime(file, ns=(1, 1))
    files = [places["a"], places["b"]]
    ia.merge_files(files, tmp_path / "out", "mean")
    size = file.stat().st_size
    save_file({name: 2 * tensor for name, tensor in states["a"].items()}, file)
    os.utime(file, ns=(1, 1))
    assert file.stat().st_size == size
    with pytest.raises(FileError, match="holds another merge"):
        ia.merge_files(files, tmp_path / "out", "mean")


def test_a_model_that_is_replaced_meanwhile_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where whoever wrote it set the time back."""
    states = llama_states("a", "b")
    places = paths(tmp_path, states)
    file = places["a"] / "model.safetensors"
    os.utime(file, ns=(1, 1))
    write = shards.MergeFolder.write

    def replaced(self: Any, shard: Any, pieces: Any) -> None:
        write(self, shard, pieces)
        save_file({name: 2 * tensor for name, tensor in states["a"].items()}, file)
        os.utime(file, ns=(1, 1))

    monkeypatch.setattr(shards.MergeFolder, "write", replaced)
    with pytest.raises(FileError, match="was written to while it was read"):
        ia.merge_files([places["a"], places["b"]], tmp_path / "out", "mean")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
@pytest.mark.parametrize("operator", ["mean", "della", "model_stock(by_unit=True)", "tsvm"])
def test_tensors_without_entries_stay_so(
    tmp_path: Path, shape: tuple[int, ...], operator: str
) -> None:
    places = paths(tmp_path, {name: {"w": torch.zeros(shape)} for name in ("base", "a", "b")})
    ia.merge_files([places["a"], places["b"]], tmp_path / "out", operator, base=places["base"])
    assert read_model(tmp_path / "out")["w"].shape == shape


def test_integers_are_compared_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_merge, "PIECE", 4)
    state = {"ids": torch.arange(10), "flags": torch.arange(10) % 2 == 0}
    places = paths(tmp_path, {"a": state, "b": state})
    seen: list[int | None] = []
    read = StoredTensor.read

    def watched(self: StoredTensor, start: int = 0, count: int | None = None) -> Tensor:
        seen.append(count)
        return read(self, start, count)

    monkeypatch.setattr(StoredTensor, "read", watched)
    ia.merge_files(list(places.values()), tmp_path / "out", "mean")
    assert set(seen) == {4, 2}
    result = read_model(tmp_path / "out")
    assert all(torch.equal(result[name], tensor) for name, tensor in state.items())
    state["ids"][9] = 0
    other = write_model(tmp_path / "c", state)
    with pytest.raises(CompositionError, match="integers that differ, in 'a' and 'c'"):
        ia.merge_files([places["a"], other], tmp_path / "third", "mean")


ENTRYWISE = [
    "sum",
    "mean",
    "weighted(weights={'a': 0.3, 'b': -1})",
    "weighted(weights={'a': 0.3}, normalise=True)",
    "task_arithmetic(scale=1.0, weights={'a': -0.3, 'b': -1})",
    "task_arithmetic(scale=-0.7, weights={'b': 0.2})",
    "task_arithmetic(base='zero')",
]


@pytest.mark.parametrize(
    ("operator", "based"),
    [(how, based) for how in ENTRYWISE for based in (False, True) if based or "scale" not in how],
)
def test_pieces_are_the_operators_own_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, based: bool
) -> None:
    """Also the sign of 0, in whatever types."""
    draws = torch.Generator().manual_seed(0)
    states = {}
    for name in ("base", "a", "b", "c"):
        wide = torch.randn(30, 7, generator=draws)
        wide[::3] = -0.0
        states[name] = {"wide": wide, "narrow": wide.bfloat16(), "half": wide.half() / 3}
    places = paths(tmp_path, states)
    base = places.pop("base") if based else None
    models = {name: path for name, path in places.items() if name != "base"}
    ia.merge_files(models, tmp_path / "pieces", operator, base=base)
    monkeypatch.setattr(file_merge, "joins_pieces", lambda spec: False)
    ia.merge_files(models, tmp_path / "whole", operator, base=base)
    file = "model.safetensors"
    assert (tmp_path / "pieces" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize(
    "operator", ["task_arithmetic", "ties(preset='mergekit')", "dare(density=0.5)", "tsvm", "slerp"]
)
def test_weights_are_joined_whatever_the_base(tmp_path: Path, operator: str) -> None:
    """With base='zero' it is not taken off, where small weights would drown in a large one."""
    small = {"w": torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) * 1e-12}
    states = {"a": small, "b": {"w": small["w"].flip(0)}, "base": {"w": torch.ones(6, 5)}}
    places = paths(tmp_path, states)
    files, how = [places["a"], places["b"]], ia.OPERATORS.spec(operator)
    how = Spec(how.name, {**how.arguments, "base": "zero"})
    ia.merge_files(files, tmp_path / "plain", how)
    ia.merge_files(files, tmp_path / "based", how, base=places["base"])
    plain, based = read_model(tmp_path / "plain"), read_model(tmp_path / "based")
    assert torch.equal(plain["w"], based["w"])


def test_memory_is_counted_for_the_operator_that_takes_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces a large tensor takes less than a small one of which all is needed."""
    state = {"large": torch.ones(2**12), "small": torch.ones(2**5, 2**5)}
    places = paths(tmp_path, dict.fromkeys("ab", state))
    monkeypatch.setattr(file_merge, "PIECE", 4)
    monkeypatch.setattr(file_merge, "machine_memory", lambda: 1)
    for by_tensor, name in ((None, "large"), ({"small": "tsvm"}, "small")):
        with pytest.raises(LimitError, match=f"joining tensor '{name}'"):
            ia.merge_files(
                places, tmp_path / "out", "task_arithmetic", by_tensor=by_tensor, base=places["a"]
            )


def test_what_takes_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = paths(tmp_path, {name: {"w": torch.ones(1000)} for name in ("base", "a", "b")})
    files, base = [places["a"], places["b"]], places["base"]
    with ia.limited(memory=1000, per_byte=1), pytest.raises(LimitError, match="limit 'memory'"):
        ia.merge_files(files, tmp_path / "out", "karcher", base=base)
    monkeypatch.setattr(file_merge, "machine_memory", lambda: 5000)
    with pytest.raises(LimitError, match="this machine has"):
        ia.merge_files(files, tmp_path / "out", "karcher", base=base)
    monkeypatch.setattr(file_merge, "PIECE", 4)  # then single entries fit
    ia.merge_files(files, tmp_path / "out", "task_arithmetic", base=base)


def test_no_more_is_read_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of single entries no more than PIECE are ever asked for at once, of tensors one at a time."""
    seen: list[int] = []
    read = StoredTensor.read

    def watched(self: StoredTensor, start: int = 0, count: int | None = None) -> Tensor:
        seen.append(self.entries if count is None else count)
        return read(self, start, count)

    monkeypatch.setattr(StoredTensor, "read", watched)
    monkeypatch.setattr(file_merge, "PIECE", 50)
    places = paths(tmp_path, llama_states("a", "b"))
    files, base = [places["a"], places["b"]], places["base"]
    ia.merge_files(files, tmp_path / "out", "task_arithmetic", base=base)
    assert max(seen) == 50
    seen.clear()
    ia.merge_files(files, tmp_path / "whole", "tsvm", base=base)
    assert max(seen) == 16 * 8


def test_a_name_is_needed_once(tmp_path: Path) -> None:
    """Plain files have the names that they have without their suffix."""
    for name in "ab":
        save_file({"w": torch.full((2,), float(name == "b"))}, tmp_path / f"{name}.safetensors")
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    made = ia.merge_files(files, tmp_path / "out", "weighted(weights={'b': 3})")
    assert made.models == ("a", "b")
    assert read_model(tmp_path / "out")["w"].tolist() == [3.0, 3.0]
