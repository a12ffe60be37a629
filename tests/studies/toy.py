"""A study of seconds: two classes of the digits, three seeds, one number a cell."""

import intarsia as ia
from intarsia.studies import Cell, Spread, Study, Table, register

RECIPE = {"epochs": 1, "sparsity": 0.5, "rounds": 1}


def cells(options, context):
    result = []
    for objective in options["objectives"]:
        for seed in range(options["seeds"]):
            sets = [("0",), ("1",)]
            plan = context.plan(
                "digits", "mlp(8)", sets, seed, objective=objective, **options["recipe"]
            )
            settings = {"objective": objective, "seed": seed, "scale": options["scale"]}
            result.append(Cell("toy", settings, {"modules": plan}))
    return result


def measure(cell, context):
    data = context.data("digits")
    pruned, unpruned = (context.bank(cell.banks["modules"], p) for p in (True, False))
    scale = cell.settings["scale"]
    return {
        name: [ia.evaluate(module, data.test).entropy * scale for module in bank]
        for name, bank in {"pruned": pruned, "unpruned": unpruned}.items()
    }


def tables(measured):
    rows = [[m.settings["objective"], Spread.of(m.result["pruned"])] for m in measured]
    return [Table("entropy", ["objective", "entropy"], rows)]


TOY = register(
    Study(
        name="toy",
        title="a toy",
        about="Small enough for tests.",
        scales={
            "small": {"objectives": ["me", "xe"], "seeds": 3, "scale": 1.0, "recipe": RECIPE},
        },
        cells=cells,
        measure=measure,
        tables=tables,
        figures=lambda measured: {},
    )
)
