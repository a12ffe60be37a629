"""Adapters: LoRA as the library peft writes it, read as changes of a base and written again.

A folder has adapter_config.json and adapter_model.safetensors; peft itself is not needed.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from torch import Tensor

from intarsia.errors import FileError, ModelError, shortened
from intarsia.files import is_no_file, write_whole
from intarsia.limits import current
from intarsia.modules import file
from intarsia.modules.bases.low_rank import LowRank
from intarsia.parsing import parse_mapping

if TYPE_CHECKING:
    from intarsia.modules.module import Module

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
# Settings under which the product of the two factors is not all there is to add.
REFUSED = (
    "use_dora", "use_qalora", "lora_bias", "use_bdlora", "fan_in_fan_out", "layer_replication",
    "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "megatron_config",
    "kasa_config", "monteclora_config", "velora_config", "arrow_config",
)  # fmt: skip
# Ways to begin that take a part of the base into the factors, so that it is another base.
MUTATING = ("pissa", "corda", "olora", "loftq", "lora_ga")
REPEATS, LONGEST_LAYER = 3, 200  # of an expression, and letters of a name that it is tried on


def read_adapter(folder: str | Path) -> tuple[dict[str, LowRank], dict[str, Tensor]]:
    """The low-rank changes by the name of their weight, and tensors that were saved as a whole."""
    with file.reading(folder):
        config = _read_config(Path(folder) / CONFIG)
        return _changes(config, file.read_tensors(Path(folder) / WEIGHTS))


def write_adapter(module: "Module", folder: str | Path) -> None:
    """Write a module's changes so that peft reads them; what trained as a whole is saved whole."""
    if module.base is None or not module.low_rank:
        raise ModelError(
            f"module {shortened(module.name)} has no low-rank changes, which are what an adapter "
            "holds: train it with trainable='lora(8)', or save it as a module"
        )
    paths = {name: name.rpartition(".")[0] for name in module.low_rank}
    whole = _whole_layers(module, set(paths.values()))
    layers = dict(module.architecture.skeleton(module.factory).named_modules())
    tensors: dict[str, Tensor] = {}
    for name, change in module.low_rank.items():
        path, shape = paths[name], module.plan[name].shape
        if getattr(layers[path], "groups", 1) != 1:
            raise ModelError(f"{path!r} is a grouped convolution, which peft's LoRA has not")
        tail = (1,) * (len(shape) - 2)
        tensors[f"{PREFIX}{path}.lora_A.weight"] = change.down.reshape(change.rank, *shape[1:])
        tensors[f"{PREFIX}{path}.lora_B.weight"] = change.up.reshape(shape[0], change.rank, *tail)
    for path in whole:
        own = {n: t for n, t in module.state.items() if n.rpartition(".")[0] == path}
        tensors |= {f"{PREFIX}{name}": tensor.clone() for name, tensor in own.items()}
    config = _config(module.low_rank, paths, whole, list(layers))
    written = json.dumps(config, indent=2, sort_keys=True)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, safetensors.torch.save(tensors, {"format": "pt"}))
    write_whole(folder / CONFIG, f"{written}\n".encode())


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if is_no_file(path):
            raise FileError(f"its {CONFIG} is not a file")
        current().check("header", path.stat().st_size, f"its {CONFIG} has {{}}")
        config = parse_mapping(path.read_bytes())
    except OSError as error:
        raise FileError(
            f"cannot be read as an adapter ({error.strerror or error}): give the folder that peft "
            f"wrote, with {CONFIG} and {WEIGHTS}"
        ) from error
    except ValueError as error:
        raise FileError(f"its {CONFIG} is damaged ({error}): get it again") from error
    kind = config.get("peft_type")
    if kind != "LORA":
        raise FileError(f"its peft_type is {shortened(kind)}: only LORA can be read")
    if config.get("bias", "none") != "none":
        raise FileError(
            f"its bias is {shortened(config['bias'])}: expected 'none'; merge it with peft and "
            "give the merged network to Module.of"
        )
    for key in REFUSED:
        if config.get(key):
            raise FileError(
                f"its {key} is {shortened(config[key])}, so it is more than a product of two "
                "factors: merge it with peft and give the merged network to Module.of"
            )
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(MUTATING):
        raise FileError(
            f"its init_lora_weights is {shortened(begun)}, so it changes another base than the "
            "network it was made for: merge it with peft and give the merged network to Module.of"
        )
    return config


def _changes(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, LowRank], dict[str, Tensor]]:
    for name in tensors:
        if not name.startswith(PREFIX):
            raise FileError(f"the tensor {shortened(name)} is not peft's: see {WEIGHTS}")
    # in one order: safetensors gives them in any
    own = {name.removeprefix(PREFIX): tensors[name] for name in sorted(tensors)}
    changes: dict[str, LowRank] = {}
    for name, down in own.items():
        layer, found, _ = name.partition(".lora_A.weight")
        if not found:
            continue
        up = own.get(f"{layer}.lora_B.weight")
        if up is None or down.dim() < 2 or up.dim() < 2:
            raise FileError(f"layer {shortened(layer)} lacks one of its two factors")
        if not down.numel() or not up.numel():
            raise FileError(f"layer {shortened(layer)} has factors without a number: get it again")
        changes[f"{layer}.weight"] = LowRank(
            up.flatten(1), down.flatten(1), _scale(config, layer, int(down.shape[0]))
        )
    rest = {name: t for name, t in own.items() if ".lora_" not in name}
    for name in sorted(own.keys() - rest.keys()):
        if not name.endswith((".lora_A.weight", ".lora_B.weight")) or (
            f"{name.rpartition('.lora_')[0]}.weight" not in changes
        ):
            raise FileError(
                f"the tensor {shortened(name)} is neither of a linear nor of a convolution layer: "
                "expected lora_A.weight and lora_B.weight; merge it with peft and give the merged "
                "network to Module.of"
            )
    if not changes:
        raise FileError(f"{WEIGHTS} holds no low-rank change")
    return changes, rest


def _scale(config: Mapping[str, Any], layer: str, rank: int) -> float:
    rooted, patterns = config.get("use_rslora") or False, config.get("alpha_pattern") or {}
    if not isinstance(rooted, bool):
        raise FileError(f"its use_rslora is {shortened(rooted)}: expected true or false")
    if not isinstance(patterns, dict):
        raise FileError(f"its alpha_pattern is {shortened(patterns)}: expected a mapping")
    alpha = config.get("lora_alpha", 8)
    for pattern, value in patterns.items():
        if _fits(pattern, layer):
            alpha = value
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise FileError(f"its lora_alpha is {shortened(alpha)}: expected a number")
    return alpha / (math.sqrt(rank) if rooted else rank)


def _fits(pattern: str, layer: str) -> bool:
    """Whether a layer is meant, as peft asks; its patterns are regular expressions.

    An expression in a file from elsewhere could take years to match. Without groups that repeat,
    and with few repetitions, its time is at most a power of the length of a name.
    """
    bare = re.sub(r"\\.", "", pattern, flags=re.DOTALL)
    repeats = len(re.findall(r"[*+?(]", bare))
    nested = re.search(r"\)[*+?]|\(\?|\{", bare) or re.search(r"\\[1-9]", pattern)
    if nested or repeats > REPEATS or (repeats and len(layer) > LONGEST_LAYER):
        raise FileError(
            f"its alpha_pattern has the expression {shortened(pattern)}, which may take very long: "
            "write the names of its layers out"
        )
    try:
        return re.match(rf"(.*\.)?({pattern})$", layer) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise FileError(
            f"its alpha_pattern has {shortened(pattern)}, which is not a regular expression "
            f"({error})"
        ) from error


def _whole_layers(module: "Module", low_rank: set[str]) -> list[str]:
    """The layers with tensors that changed as a whole; peft cannot have both in one layer."""
    assert module.base is not None
    changed = {
        name.rpartition(".")[0]
        for name, tensor in module.state.items()
        if tensor is not module.base.state[name] and name not in module.low_rank
    }
    if both := sorted(changed & low_rank):
        raise ModelError(
            f"layer {both[0]!r} changed by a low rank and, in another tensor, as a whole, which "
            "an adapter of peft's does not hold: train it one way"
        )
    if "" in changed:
        raise ModelError("a parameter of the network itself changed, which peft does not save")
    return sorted(changed)


def _config(
    changes: Mapping[str, LowRank],
    paths: Mapping[str, str],
    whole: list[str],
    layers: list[str],
) -> dict[str, Any]:
    first = next(iter(changes.values()))
    ranks = {paths[name]: change.rank for name, change in changes.items()}
    alphas = {paths[name]: change.scale * change.rank for name, change in changes.items()}
    alpha = first.scale * first.rank
    targets = list(ranks)
    ends = [path for path in layers if any(_ends(path, target) for target in targets)]
    # peft looks at how names end: where that says too much, all of them are spelled out
    named: list[str] | str = targets
    if sorted(ends) != sorted(targets):
        named = "|".join(f"({re.escape(target)})" for target in targets)
    for path in whole:
        if others := [other for other in layers if other != path and other.endswith(path)]:
            raise ModelError(
                f"layer {path!r} changed as a whole, and peft would take {others[0]!r} for it too"
            )
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": first.rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "fan_in_fan_out": False,
        "target_modules": named,
        "modules_to_save": whole or None,
        # from the start of a name on: peft would take blocks.fc for fc
        "rank_pattern": {f"^{re.escape(p)}": r for p, r in ranks.items() if r != first.rank},
        "alpha_pattern": {f"^{re.escape(p)}": a for p, a in alphas.items() if a != alpha},
    }


def _ends(path: str, target: str) -> bool:
    return path == target or path.endswith(f".{target}")
