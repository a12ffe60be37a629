"""peft's LoRA adapters: read as changes of a base, written so that peft reads them again."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import FileError, ModelError
from intarsia.modules import LowRank

CLASSES = {"rewarded": "a", "catalogue": ["a", "b", "c"], "shape": (1, 6, 6)}


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(64, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.fc(self.conv(x).flatten(1)).relu())


def network() -> Small:
    torch.manual_seed(0)
    return Small()


def changed() -> ia.Module:
    """A module with low-rank changes of two layers and a head that changed as a whole."""
    base = network()
    module = ia.Module.of(base, base=base, **CLASSES)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(1)
    shapes = {"conv.weight": (4, 9), "fc.weight": (12, 64)}
    low_rank = {
        name: LowRank(
            torch.randn(rows, 2, generator=draw), torch.randn(2, columns, generator=draw), 1.5
        )
        for name, (rows, columns) in shapes.items()
    }
    state = {n: t for n, t in module.state.items() if n not in low_rank}
    state["head.weight"] = state["head.weight"] + 1
    mask = {n: m for n, m in module.mask.items() if n not in (*low_rank, "head.weight")}
    return replace(module, state=state, mask=mask, low_rank=low_rank)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    module = changed()
    module.save_adapter(tmp_path)
    again = ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    for name, tensor in module.state.items():
        assert torch.equal(tensor, again.state[name])
    assert list(again.low_rank) == list(module.low_rank)


def test_peft_reads_what_is_written(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    module = changed()
    module.save_adapter(tmp_path)
    merged = peft.PeftModel.from_pretrained(network(), tmp_path).merge_and_unload()
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, module.state[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rslora", [False, True])
def test_what_peft_wrote_is_merged_as_peft_merges_it(tmp_path: Path, rslora: bool) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=["conv", "fc"], use_rslora=rslora,
        modules_to_save=["head"], alpha_pattern={"fc": 3}, init_lora_weights=False,
    )  # fmt: skip
    torch.manual_seed(5)
    adapted = peft.get_peft_model(network(), config)
    adapted.save_pretrained(tmp_path)
    module = ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    for name, tensor in adapted.merge_and_unload().state_dict().items():
        torch.testing.assert_close(tensor, module.state[name], rtol=1e-6, atol=1e-6)
    assert not torch.equal(module.state["fc.weight"], network().state_dict()["fc.weight"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"peft_type": "IA3"}, "only LORA"),
        ({"bias": "all"}, "bias"),
        ({"use_dora": True}, "use_dora"),
        ({"lora_alpha": "big"}, "lora_alpha"),
        ({"alpha_pattern": ["fc"]}, "expected a mapping"),
        ({"alpha_pattern": {"(fc": 1}}, "which may take|not a regular expression"),
        ({"alpha_pattern": {"[": 1}}, "not a regular expression"),
        ({"use_rslora": "false"}, "use_rslora"),
        ({"init_lora_weights": "pissa_niter_4"}, "another base"),
    ],
)
def test_other_adapters_are_refused(
    tmp_path: Path, setting: dict[str, object], message: str
) -> None:
    changed().save_adapter(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **setting}))
    with pytest.raises(FileError, match=message):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]


def test_a_missing_factor_or_layer_is_named(tmp_path: Path) -> None:
    changed().save_adapter(tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    other = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(ModelError, match=r"conv\.weight"):
        ia.Module.from_adapter(tmp_path, other, **CLASSES)  # type: ignore[arg-type]
    tensors.pop("base_model.model.fc.lora_B.weight")
    path.write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(FileError, match="fc"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    with pytest.raises(FileError, match="cannot be read"):
        ia.Module.from_adapter(tmp_path / "none", network(), **CLASSES)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no low-rank"):
        changed().without_base().save_adapter(tmp_path)


def test_a_weight_that_is_not_base_plus_change_is_refused() -> None:
    module = changed()
    state = {**module.state, "fc.weight": module.state["fc.weight"] + 1}
    with pytest.raises(ModelError, match="not its base plus"):
        replace(module, state=state)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)" * 40, r"\\(a|a)" * 40, "(a*)*", ".*" * 12 + "b", "a{1,99}{1,99}b", r"(a)\1"],
)
def test_an_expression_without_end_is_not_tried(tmp_path: Path, pattern: str) -> None:
    changed().save_adapter(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    tensors = safetensors.torch.load(weights.read_bytes())
    long = "a" * 60 + "\\a" * 40
    renamed = {name.replace("fc.", f"{long}."): tensor for name, tensor in tensors.items()}
    weights.write_bytes(safetensors.torch.save(renamed))
    edit_config(tmp_path, alpha_pattern={pattern: 1})
    start = time.process_time()
    with pytest.raises(FileError, match="very long"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    assert time.process_time() - start < 1


def edit_config(folder: Path, **settings: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.mark.parametrize("pattern", ["fc", "^fc", "f.", r"(fc|other)", r"f\w+", ".*c"])
def test_patterns_of_layers_are_read_as_peft_reads_them(tmp_path: Path, pattern: str) -> None:
    changed().save_adapter(tmp_path)
    edit_config(tmp_path, alpha_pattern={pattern: 5})
    module = ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    assert [module.low_rank[n].scale for n in ("conv.weight", "fc.weight")] == [1.5, 2.5]


def test_files_of_strangers_are_counted_before_they_are_read(tmp_path: Path) -> None:
    changed().save_adapter(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    with ia.limited(memory=1, per_byte=1), pytest.raises(FileError, match="limit 'memory'"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    with ia.limited(header=100), pytest.raises(FileError, match="limit 'header'"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-4])
    with pytest.raises(FileError, match="cut off"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]
    tensors = safetensors.torch.load(sound)
    tensors["base_model.model.fc.lora_A.weight"] = torch.zeros(0, 64)
    tensors["base_model.model.fc.lora_B.weight"] = torch.zeros(12, 0)
    weights.write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(FileError, match="without a number"):
        ia.Module.from_adapter(tmp_path, network(), **CLASSES)  # type: ignore[arg-type]


class Nested(nn.Module):
    """Two layers of one name, one of them inside another."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential()
        self.block.add_module("fc", nn.Linear(36, 8))
        self.fc = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.fc(self.block(x.flatten(1)).relu()).relu())


def test_a_rank_and_a_scale_are_those_of_one_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = Nested()
    module = ia.Module.of(base, base=base, **CLASSES)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(1)
    low_rank = {
        name: LowRank(
            torch.randn(8, rank, generator=draw), torch.randn(rank, size, generator=draw), scale
        )
        for name, size, rank, scale in (("block.fc.weight", 36, 2, 1.5), ("fc.weight", 8, 3, 2.0))
    }
    state = {n: t for n, t in module.state.items() if n not in low_rank}
    mask = {n: m for n, m in module.mask.items() if n not in low_rank}
    module = replace(module, state=state, mask=mask, low_rank=low_rank)
    module.save_adapter(tmp_path)
    again = ia.Module.from_adapter(tmp_path, base, **CLASSES)  # type: ignore[arg-type]
    for name, tensor in module.state.items():
        assert torch.equal(tensor, again.state[name])
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    merged = peft.PeftModel.from_pretrained(Nested(), tmp_path).merge_and_unload()
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, module.state[name], rtol=1e-6, atol=1e-6)
