"""The page on the size of module files."""

from collections.abc import Callable

from pages import Result, page, table


def filesize(load: Callable[[str], Result]) -> str:
    result, target = load("filesize"), load("targets")["filesize"]["dense/sparse"]
    ratio, files = result["dense/sparse"], result["files"]
    rows = [
        [
            name,
            f"{row['density']:.2%}",
            f"{row['bytes']:,}",
            "yes" if row["same_logits"] else "NO",
            f"{row['samples']:,}",
        ]
        for name, row in files.items()
    ]
    same = all(row["same_logits"] for row in files.values())
    return page(
        "File size",
        [result],
        f"One module of {result['parameters']:,} parameters, unpruned after round one and pruned "
        "after the last; each is written, loaded and asked about every test sample.",
        table("module|density|bytes|same logits, bit for bit|samples", rows),
        f"The sparse file is 1/{ratio:.1f} of the dense one; the target of 1/{target} is "
        f"{'met' if ratio >= target else 'missed'}. Loaded, both answer "
        f"{'bit for bit as before' if same else 'NOT as before'}.",
    )
