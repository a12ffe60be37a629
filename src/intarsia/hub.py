"""Folders to share: a module, composition or classifier with its card, here or on the hub."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

import intarsia
from intarsia.card import card_of
from intarsia.composition import Composition
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import FileError
from intarsia.estimator import ModularClassifier
from intarsia.estimator.stored_state import background_tensors, packed, unpacked
from intarsia.files import canonical, digest_of, write_whole
from intarsia.models import Model
from intarsia.modules import Module, file, header

CONFIG, CARD = "config.json", "README.md"
FORMAT = {"format": "intarsia-pretrained", "version": 1}
FILES = {
    "module": "module.safetensors",
    "composition": "composition.safetensors",
    "classifier": "composition.safetensors",
}
BACKGROUND = "background.safetensors"
BACKGROUND_KIND = "intarsia-background"

Pretrained = Module | Composition | ModularClassifier


def save_pretrained(artifact: Pretrained, folder: str | Path, *, background: bool = True) -> None:
    """Write a module, composition or fitted classifier into a folder, with a model card.

    The weights are intarsia's safetensors files, config.json has the rest, and nothing is pickled.
    A classifier's background holds rows of its training data: `background=False` leaves them out,
    and what is loaded then must be given a background to learn more classes. A composition keeps
    the samples it was given.
    """
    _write(artifact, Path(folder), background, "path/to/this/folder")


def from_pretrained(
    source: str | Path,
    *,
    model: Model | None = None,
    encoder: EncoderLike | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> Pretrained:
    """Read what `save_pretrained` wrote, from a folder or from a repository of the hub.

    `model` is the factory of a network of your own, `encoder` as in Module.load. A folder of that
    name comes before the hub.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _downloaded(str(source), revision, token)
    with file.reading(folder / CONFIG):
        config = _config(folder / CONFIG)
    path = folder / FILES[config["kind"]]
    if config["kind"] == "module":
        return Module.load(path, model, encoder=encoder)
    composition = Composition.load(path, model, encoder=encoder)
    if config["kind"] == "composition":
        return composition
    with file.reading(folder):
        tensors = _read_background(folder / BACKGROUND, config["background"])
        return unpacked(config["classifier"], composition, tensors, model)


def weights_file(folder: Path) -> Path:
    """The file of a folder's module or composition; of a classifier that of its composition."""
    with file.reading(folder / CONFIG):
        return folder / FILES[_config(folder / CONFIG)["kind"]]


def push_to_hub(
    artifact: Pretrained,
    repo_id: str,
    *,
    background: bool = False,
    private: bool | None = None,
    token: str | None = None,
    message: str | None = None,
) -> str:
    """Put a module, composition or classifier on the hub, and return its address.

    The rows that a classifier keeps are training data, so they stay behind unless
    `background=True`; a composition that holds samples is refused without it.
    """
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        _write(artifact, Path(folder), background, repo_id)
        api = hub.HfApi(token=token)
        _call(f"cannot make {repo_id}", api.create_repo, repo_id, exist_ok=True, private=private)
        _call(
            f"cannot push to {repo_id}",
            api.upload_folder,
            repo_id=repo_id,
            folder_path=folder,
            commit_message=message or f"A {_kind(artifact)[0]} of intarsia",
        )
    return f"https://huggingface.co/{repo_id}"


def _write(artifact: Pretrained, folder: Path, background: bool, address: str) -> None:
    kind, weights = _kind(artifact)
    config: dict[str, Any] = {**FORMAT, "intarsia": intarsia.__version__, "kind": kind}
    if isinstance(weights, Composition) and weights.samples is not None and not background:
        raise FileError(
            f"the composition by {weights.operator} has {len(weights.samples)} rows of data, which "
            "go with it: allow that with background=True, or join the modules without samples"
        )
    if isinstance(artifact, ModularClassifier):
        config["classifier"] = packed(artifact)
        tensors = background_tensors(artifact.background_) if background else {}
        config["background"] = digest_of("background", tensors) if tensors else None
        _write_background(folder / BACKGROUND, tensors)
    weights.save(folder / FILES[kind])
    write_whole(folder / CARD, card_of(artifact, address).encode())
    # Last, so that a folder with a configuration is complete.
    write_whole(folder / CONFIG, canonical(config).encode() + b"\n")


def _kind(artifact: Pretrained) -> tuple[str, Module | Composition]:
    """Its kind, and what holds its weights."""
    if isinstance(artifact, ModularClassifier):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(artifact)
        return "classifier", artifact.composition_
    if isinstance(artifact, Composition):
        return "composition", artifact
    if isinstance(artifact, Module):
        return "module", artifact
    raise FileError(
        f"a {type(artifact).__name__} cannot be saved for the hub: give a Module, a Composition or "
        "a ModularClassifier"
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        config = file.parse(path.read_bytes(), "configuration")
    except OSError as error:
        raise FileError(
            f"{error.strerror or error}: give a folder that save_pretrained made"
        ) from error
    stated = {key: config.get(key) for key in FORMAT}
    if stated != FORMAT or config.get("kind") not in tuple(FILES):  # which may not be a string
        raise FileError(
            f"it is not of {FORMAT}: give a folder that save_pretrained made, with this version "
            "of intarsia or an earlier one"
        )
    more = ("classifier", "background") if config["kind"] == "classifier" else ()
    header.check_keys(config, (*FORMAT, "intarsia", "kind", *more))
    if more and not isinstance(config["classifier"], dict):
        raise FileError("its 'classifier' is not a mapping: get the files again")
    return config


def _write_background(path: Path, tensors: dict[str, Tensor]) -> None:
    if tensors:
        file.write(path, BACKGROUND_KIND, {}, tensors)
    elif path.exists():
        path.unlink()  # of an earlier save


def _read_background(path: Path, digest: Any) -> dict[str, Tensor]:
    if digest is None:
        return {}
    _, tensors = file.read(path, BACKGROUND_KIND)
    if digest_of("background", tensors) != digest:
        raise FileError(f"{path.name} is not the background that {CONFIG} names: save it again")
    return tensors


def _downloaded(repo_id: str, revision: str | None, token: str | None) -> Path:
    result = _call(
        f"{repo_id} is not a folder here, and cannot be fetched from the hub",
        _hub().snapshot_download,
        repo_id,
        revision=revision,
        token=token,
        allow_patterns=["*.safetensors", CONFIG, CARD],
    )
    return Path(result)


def _call(what: str, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """The hub and its network raise many errors; ours says what was tried."""
    try:
        return function(*args, **settings)
    except Exception as error:
        raise FileError(f"{what}: {error}") from error


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise FileError(
            'the hub needs the package huggingface_hub: pip install "intarsia[hub]"'
        ) from error
    return huggingface_hub
