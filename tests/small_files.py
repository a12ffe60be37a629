"""Small models as files: a folder each, with shards where asked for."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WIDTH, HIDDEN, LAYERS, VOCABULARY = 8, 12, 4, 16
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}


def llama_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "lm_head.weight": (VOCABULARY, WIDTH),
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    for i in range(LAYERS):
        own = {f"self_attn.{k}_proj.weight": (WIDTH, WIDTH) for k in "qkvo"}
        own |= {f"mlp.{k}_proj.weight": (HIDDEN, WIDTH) for k in ("gate", "up")}
        own |= {"mlp.down_proj.weight": (WIDTH, HIDDEN), "input_layernorm.weight": (WIDTH,)}
        own |= {"post_attention_layernorm.weight": (WIDTH,)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in own.items()}
    return shapes


def llama_states(*names: str) -> dict[str, dict[str, Tensor]]:
    """A base, and models that are some way off it."""
    draw = torch.Generator().manual_seed(0)
    shapes = llama_shapes()
    base = {k: torch.randn(s, generator=draw) for k, s in shapes.items()}
    states = {"base": base}
    for name in names:
        states[name] = {k: t + 0.3 * torch.randn(t.shape, generator=draw) for k, t in base.items()}
    return states


def write_model(folder: Path, state: Mapping[str, Tensor], shards: int = 1) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if shards == 1:
        save_file(dict(state), folder / "model.safetensors")
        return folder
    placed = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(state)}
    for file in set(placed.values()):
        save_file({k: t for k, t in state.items() if placed[k] == file}, folder / file)
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def read_model(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: t for file in files for name, t in load_file(file).items()}
