"""Both decoders give the same records with protobuf's other backend too, which is written in Python and slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = [
    str(Path(__file__).with_name(f"test_{name}.py")) for name in ("decoders", "damaged_messages", "mutable_decoders")
]
_BACKEND = "from google.protobuf.internal import api_implementation; print(api_implementation.Type())"


def python(backend: str, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": backend, **more}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def decoders_pass_their_tests(backend: str, *selected: str, **effort: str) -> None:
    found = python(backend, "-c", _BACKEND)
    if found.stdout.strip() != backend:
        pytest.skip(f"this protobuf has no backend {backend}: {found.stdout or found.stderr}")
    run = python(backend, "-m", "pytest", "--run-long", "-q", "-p", "no:cacheprovider", *selected, *TESTS, **effort)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_decoders_pass_their_tests_with_the_python_backend_of_protobuf() -> None:
    """All but the mutants, which show what the tests find: that does not depend on the backend."""
    decoders_pass_their_tests("python", "-k", "not mutant", PROPERTY_SHARE="0.06", DAMAGED_SEEDS="20")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("backend", "examples"), [("upb", 5000), ("python", 1000)])
def test_decoders_pass_a_campaign_of_their_tests_with_each_backend(backend: str, examples: int) -> None:
    decoders_pass_their_tests(backend, PROPERTY_EXAMPLES=str(examples), DAMAGED_SEEDS=str(2 * examples))
