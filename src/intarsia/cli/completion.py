"""What a shell offers to complete: names, without torch, which the registries would import.

A test compares each list with its registry. Where nothing fits, shells offer files and folders.
"""

from collections.abc import Callable, Sequence

ALIGNMENTS = ("activations", "weights")
ARMS = (
    "connections", "contribution", "evolved", "magnitude", "random", "random_units", "similarity",
    "ticket", "wanda",
)  # fmt: skip
DATA_OPTIONS = (
    "classes", "download", "drop", "duplicates", "encoding", "features", "groups", "labels",
    "missing", "progress", "public", "scale", "scale_on", "seed", "size", "target", "test",
    "validation",
)  # fmt: skip
CLOSURES = ("gaussian", "sample")
BATCHES = ("all", "balanced", "shown")
AUGMENTATIONS = ("crop", "cutout", "flip", "none")
DATASETS = (
    "cifar10", "cifar100", "digits", "fashion_mnist", "har", "mnist", "newsgroups", "reuters_r8",
    "yeast",
)  # fmt: skip
ENCODERS = ("efficientnet_lite0", "hf", "minilm", "mobilenet_v2", "timm")
ENGINES = (
    "auto", "compiled", "grouped", "lenet", "mlp", "plain", "processes", "ray", "single", "stack",
    "streams",
)  # fmt: skip
FORMS = ("symmetric", "free")
LENS_POSITIONS = ("all", "last", "first")
LAWS = ("exponential", "uniform", "laplace", "bernoulli", "gaussian")
MODELS = (
    "efficientnet_lite0", "fastnet", "lenet", "mlp", "mobilenet_v2", "resnet18", "vgg11", "vit",
)  # fmt: skip
GRAPH_SETS = ("citeseer", "computers", "cora", "europe", "photo")
NEGATIVES = (
    "bent", "gaussian", "mixed", "noise", "none", "public", "scaled", "shuffled",
    "turned", "warped",
)  # fmt: skip
OBJECTIVES = ("confidence_penalty", "me", "other", "qme", "smoothing", "xe")
OPERATORS = (
    "auto", "breadcrumbs", "centroid", "centroid_entropy", "dare", "della", "emr",
    "entropy_router", "fisher", "inlay", "iso_c", "karcher", "logit_mean", "logit_weighted",
    "logits", "mean", "model_stock", "multislerp", "own", "probabilities", "regmean", "sce",
    "slerp", "stick_breaking", "sum", "task_arithmetic", "ties", "tsvm", "weighted",
)  # fmt: skip
OPTIMISERS = ("adam", "adamw", "sgd")
PAIR_LOSSES = ("mse", "cumulants")
PATTERNS = (
    "totem", "skull", "butterfly", "apple", "skull-sgd", "butterfly-sgd", "apple-sgd",
)  # fmt: skip
PATTERN_OPTIMISERS = ("adam", "muon")
PRESETS = ("auto", "paper", "released")
PROTOCOLS = ("cached", "literal")
PRUNINGS = ("magnitude", "random", "similarity", "territory", "units")
SCHEDULES = ("constant", "cosine", "onecycle")
UNITS = ("linear", "quadratic", "tanh", "relu", "sigmoid", "gelu", "silu", "softplus")
VISIBILITIES = ("all", "own", "past")
SPLITS = ("train", "validation", "test", "all")
STUDIES = (
    "apart", "base", "cifar10", "cifar100", "complete", "confusion", "continual", "controls",
    "flow", "fresh_head", "geometry", "graphs", "impact", "lens", "pairs", "path",
    "readout_of_modules",
    "single", "sparsity", "sweetspot", "temperature", "unlearning", "width",
)  # fmt: skip

Complete = Callable[[str], list[str]]


def one_of(names: Sequence[str]) -> Complete:
    """Completes one name."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def some_of(names: Sequence[str]) -> Complete:
    """Completes the last name of a list that is separated by commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete
