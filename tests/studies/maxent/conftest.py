"""The small form of the study that a file of tests is about, run once for all of them.

The file says which: STUDY, and OPTIONS where they are not those of the small form.
"""

from typing import Any

import pytest

import intarsia as ia
from intarsia.studies import Measured, Store, StudyContext, run
from intarsia.studies.study import Study

Ran = tuple[Study, StudyContext, list[Measured]]


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One for all files: what several studies train alike is trained once."""
    return Store(tmp_path_factory.mktemp("studies") / "store")


@pytest.fixture(scope="module")
def small(request: pytest.FixtureRequest, store: Store) -> Ran:
    """The study, its context, and the cells that were measured."""
    study: Study = request.module.STUDY
    options: dict[str, Any] = getattr(request.module, "OPTIONS", study.options("small"))
    context = StudyContext(store, "cpu")
    return study, context, run(study, options, store, context=context)


@pytest.fixture(scope="module")
def done(small: Ran) -> list[Measured]:
    return small[2]


@pytest.fixture(scope="module")
def data() -> ia.Data:
    return ia.load_data("digits")


@pytest.fixture(scope="module")
def parts(request: pytest.FixtureRequest, data: ia.Data) -> ia.Bank:
    """Modules of all classes, trained with the settings FAST of the file."""
    return ia.train(data, sparsity=0.5, rounds=1, **request.module.FAST)
