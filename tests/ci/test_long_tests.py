"""The tests that `make test` leaves out, by their marks: a folder of tests is run with the project's own hooks."""

import pytest

pytest_plugins = "pytester"

_TESTS = """
    import pytest

    def test_short(): pass

    @pytest.mark.long
    def test_long(): pass

    @pytest.mark.slow
    def test_slow(): pass

    @pytest.mark.long(but=2)
    @pytest.mark.parametrize("case", "abcde")
    def test_cases(case): pass
"""


@pytest.mark.parametrize(
    ("options", "passed"), [([], 1 + 2), (["--run-long"], 1 + 1 + 5), (["--run-slow"], 1 + 1 + 5 + 1)]
)
def test_long_and_slow_tests_run_if_they_are_asked_for(
    pytester: pytest.Pytester, options: list[str], passed: int
) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    long\n    slow\n")
    pytester.makeconftest(
        "from tests.long_tests import add_options as pytest_addoption\n"
        "from tests.long_tests import skip_unless_wanted as pytest_collection_modifyitems\n"
    )
    pytester.makepyfile(_TESTS)
    pytester.runpytest("--strict-markers", *options).assert_outcomes(passed=passed, skipped=8 - passed)
