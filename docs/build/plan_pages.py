"""The page of a plan that nobody has carried out: a thousand modules of ImageNet."""

from intarsia.studies.wording import several
from pages import Load, Result, page, table

UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def imagenet(load: Load) -> str:
    result = load("imagenet")
    given, measured = result["assumptions"], result["measured"]
    parts = [part for network in result["networks"] for part in _network(network, given)]
    return page(
        "A thousand modules of ImageNet, on paper",
        [result],
        "**A plan, not a result: nothing on this page was trained.** What would one module for "
        f"each of {given['classes']:,} classes take, if training ran at the speed that was "
        f"measured on {measured['date']} on one {measured['machine']}, by `{measured['command']}`?",
        *(_in_short(network) for network in result["networks"]),
        "## Assumptions",
        "\n".join(
            [
                f"- {given['images']:,} training images, the same number for each class.",
                f"- {given['epochs']} epochs per module, over all rounds of pruning together. "
                "Whether that is enough is not known.",
                "- The time per sample grows with the number of multiplications, in the backward "
                "pass as in the forward pass. Data are on the device or arrive in time; "
                "validation is not counted.",
                f"- Balanced batches have {given['negatives']:g} images of other classes for each "
                "image of the module's own.",
                f"- {given['gpus']} GPUs, all of them busy: chunks of modules share only the data. "
                f"A GPU costs {given['price']:g} dollars per hour.",
                f"- {given['sparsity']:.0%} of the weights of a module are pruned, at positions "
                "that look random.",
            ]
        ),
        *parts,
    )


def _in_short(network: Result) -> str:
    """GPU hours and dollars for the largest images."""
    row = network["rows"][-1]
    words = [
        f"{_number(row[way]['gpu_hours'])} GPU hours and {_number(row[way]['dollars'])} dollars "
        f"{how}"
        for way, how in (("plain", "on all samples"), ("balanced", "on balanced batches"))
    ]
    return (
        f"With `{network['speed']['model']}` and images of {row['size']} x {row['size']} it would "
        f"take {' or '.join(words)}."
    )


def _network(network: Result, given: Result) -> list[str]:
    speed, rows = network["speed"], network["rows"]
    shape = " x ".join(map(str, speed["shape"]))
    times = [
        [
            f"{row['size']} x {row['size']}",
            f"{row['work_per_sample']:.3g}",
            _number(row["joint_hours"]),
            *(_number(row[way][key]) for way in ("plain", "balanced") for key in KEYS),
        ]
        for row in rows
    ]
    sizes = [
        [
            f"{row['size']} x {row['size']}",
            f"{row['parameters']:,}",
            *map(_bytes, _sizes(row)),
            f"{row['modules_at_a_time']:,}",
        ]
        for row in rows
    ]
    return [
        f"## `{speed['model']}`",
        f"Measured: {speed['samples_per_second']:,.0f} samples per second of {shape}, "
        f"{several(speed['modules'], 'module')} at a time. The layers are the same for larger "
        "images.",
        table(
            "images|multiplications per sample, ratio to those measured|joint network, GPU hours"
            "|all samples: GPU hours|days|dollars|balanced: GPU hours|days|dollars",
            times,
        ),
        "Memory and disk:",
        table(
            "images|parameters per module|data as uint8|all files, dense|all files, pruned"
            f"|memory per module in training|modules in {_bytes(given['memory'])}",
            sizes,
        ),
        f"Memory in training is that of the measured run, batch {speed['batch']}, divided among "
        "its modules and multiplied by the number of pixels. Where fewer modules fit onto a GPU "
        f"than the {speed['modules']} measured, they need a smaller batch or train more slowly.",
        f"Joined by logits, an image goes through all {given['classes']:,} modules: "
        f"{given['classes']:,} times the work of the joint network, minus what pruning saves.",
    ]


KEYS = ("gpu_hours", "days", "dollars")


def _sizes(row: Result) -> list[float]:
    keys = ("pictures", "dense_files", "sparse_files", "module_in_training")
    return [row["bytes"][key] for key in keys]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _bytes(count: float) -> str:
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {UNITS[power]}"
