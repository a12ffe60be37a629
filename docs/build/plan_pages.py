"""The page of a plan that nobody has carried out: a thousand modules of ImageNet."""

from pages import Load, Result, page, table

UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def imagenet(load: Load) -> str:
    result = load("imagenet")
    given, measured = result["assumptions"], result["measured"]
    parts = [part for network in result["networks"] for part in _network(network, given)]
    return page(
        "A thousand modules of ImageNet, on paper",
        [result],
        "**A plan, not a result: nothing on this page was trained.** It says what one module for "
        f"each of {given['classes']:,} classes would take, if training goes on as fast as it was "
        f"measured to go on {measured['date']} on one {measured['machine']}, by "
        f"`{measured['command']}`.",
        "## What is assumed",
        "\n".join(
            [
                f"- {given['images']:,} training pictures, equally many of each class.",
                f"- {given['epochs']} epochs of each module, all rounds of pruning together. "
                "Whether that is enough is not known.",
                "- A sample of larger pictures takes longer by as much as it takes more "
                "multiplications, and going back as much longer as going forward. Data are on the "
                "device or arrive in time; validation is not counted.",
                f"- Balanced batches have {given['negatives']:g} pictures of other classes for "
                "each of the module's own.",
                f"- {given['gpus']} GPUs, all of them busy: chunks of modules share nothing but "
                f"the data. {given['price']:g} dollars for an hour of one.",
                f"- {given['sparsity']:.0%} of the weights of a module are pruned, in places that "
                "look random.",
            ]
        ),
        *parts,
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
        [f"{row['size']} x {row['size']}", f"{row['parameters']:,}", *map(_bytes, _sizes(row))]
        for row in rows
    ]
    return [
        f"## `{speed['model']}`",
        f"Measured: {speed['samples_per_second']:,.0f} samples a second of {shape}, "
        f"{speed['modules']} module{'s' * (speed['modules'] > 1)} at a time. Its layers are the "
        "same for larger pictures.",
        table(
            "pictures|work of a sample, times that measured|joint network, GPU hours"
            "|all samples: GPU hours|days|dollars|balanced: GPU hours|days|dollars",
            times,
        ),
        "Memory and disk:",
        table(
            "pictures|parameters of a module|data as uint8|files, dense|files, pruned"
            "|a module in training",
            sizes,
        ),
        f"Answered by logits, a picture goes through all {given['classes']:,} modules: "
        f"{given['classes']:,} times the work of the joint network, but for what pruning saves.",
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
