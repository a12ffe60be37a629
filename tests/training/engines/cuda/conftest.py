"""What a file of tests prints as a script, run once in Triton's interpreter."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def result(request):
    """In a process of its own, since Triton takes the interpreter up when it is imported."""
    done = subprocess.run(
        [sys.executable, str(request.path)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
