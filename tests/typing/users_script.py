"""What a user writes, checked by test_users_script.py in mypy's strict mode; it is never run."""

from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from torch import nn

import intarsia as ia


def network(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), outputs))


def main(folder: Path) -> float:
    data = ia.load_data("digits", seed=1, missing=None, target=None)
    assert_type(data, ia.Data)
    recipe = ia.Recipe(data="digits", epochs=1, sparsity=0.5)
    bank = ia.train(data, recipe, out=folder / "modules", model=network)
    bank = ia.train("digits", sparsity=0.5, epochs=1)
    assert_type(bank, ia.Bank)
    module = bank["3"]
    assert_type(module, ia.Module)
    module.save(folder / "3.safetensors")
    module = ia.Module.load(folder / "3.safetensors")
    for one in bank:
        print(one.name, one.rewarded, one.density)
    whole = ia.compose(bank, "logits")
    assert_type(whole, ia.Composition)
    whole = whole.remove("3")
    whole = whole.add(module)
    whole.save(folder / "whole.safetensors")
    whole = ia.Composition.load(folder / "whole.safetensors")
    score = ia.evaluate(whole, data.test)
    assert_type(score, ia.Evaluation)
    assert_type(score.accuracy, float)
    print(score.accuracy, score.entropy, score.confusion)
    answers = whole.predict(data.test.x)
    assert_type(answers, torch.Tensor)
    print(answers.tolist(), whole.predict_proba(data.test.x).shape)
    logits: torch.Tensor = module.to_module()(data.test.x)
    print(logits.shape)
    way = ia.path(bank["3"], bank["8"], data, 5)
    print(way, ia.compatibility(bank["3"], bank["8"], data))
    print(ia.compatibility_matrix(bank, data))
    print(ia.partition(data.catalogue, "blocks(5)"), ia.disjoint_pairs(data.catalogue, 2))
    ia.export(whole, folder / "whole.onnx")
    page: ia.Report = ia.report(bank, data)
    page.save(folder / "report.html")
    merged: ia.Composition = ia.MergeRecipe(models=[str(folder / "modules")]).compose()
    print(ia.compact(merged.parts[0]), ia.threshold(whole, data.validation))
    x, y = np.zeros((20, 3)), np.arange(20) % 2
    model = ia.ModularClassifier(sparsity=0.5).fit(x, y)
    assert_type(model, ia.ModularClassifier)
    predicted: np.ndarray = model.predict(x)
    model.add_class(x, 2).remove_class(2)
    print(predicted, model.predict_proba(x), model.score(x, y))
    ia.save_pretrained(model, folder / "hub")
    try:
        ia.load_data("nothing")
    except ia.IntarsiaError as error:
        print(error)
    return score.accuracy
