"""The small scale of a study of experts, measured once for the tests of its file."""

import pytest

from intarsia.studies import Measured, Store, StudyContext, run


@pytest.fixture(scope="package")
def context(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    """One store: the studies of fresh heads and of routers ask for the same experts."""
    return StudyContext(Store(tmp_path_factory.mktemp("experts") / "store"), "cpu")


@pytest.fixture(scope="module")
def small(request: pytest.FixtureRequest, context: StudyContext) -> list[Measured]:
    study = request.module.STUDY
    return run(study, study.options("small"), context._store, context=context)
