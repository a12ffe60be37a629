"""Being part of a Ray cluster: what goes wrong there, and what only goes wrong meanwhile."""

from typing import Any

import pytest

from intarsia.errors import StudyError

ray = pytest.importorskip("ray", reason="needs ray: pip install 'intarsia[cluster]'")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was shut down, of a Ray that starts nothing."""
    shut: list[str] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **settings: None)
    monkeypatch.setattr(ray, "shutdown", lambda: shut.append("ray"))
    return shut


def test_a_cluster_that_is_not_there_is_named(
    ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from intarsia.training.distributed.ray_connection import joined

    def init(**settings: Any) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(StudyError, match=r"no Ray cluster at 'here:1': nobody answers"),
        joined("here:1", None, 1, StudyError),
    ):
        pytest.fail("there is no cluster")
    assert ended == ["ray"]


def test_a_pipe_that_breaks_meanwhile_says_nothing_of_the_cluster(ended: list[str]) -> None:
    """As that of `intarsia study run | head`, whose error is a ConnectionError, too."""
    from intarsia.training.distributed.ray_connection import joined

    with pytest.raises(BrokenPipeError), joined(None, 1, 1):
        raise BrokenPipeError
    assert ended == ["ray"]
