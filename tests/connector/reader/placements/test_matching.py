"""Read functions are found by the exact names of streams and placements; what two could own is refused by name."""

import pytest

from connector.core.dialects import GOOGLESQL, POSTGRESQL
from connector.errors import ConfigurationError
from connector.reader.placements.matching import MatchedFunctions, check_placements, has_functions, match_functions


def matched(
    *functions: str, streams: dict[str, bool] | None = None, placements: tuple[str, ...] = ("eu",)
) -> MatchedFunctions:
    found = streams or {"S": True}
    return match_functions("S", GOOGLESQL, streams=found, placements=placements, functions=functions)


def test_the_option_is_compared_without_case() -> None:
    assert has_functions({"per_placement_tvf": "TRUE"})
    assert not has_functions({"per_placement_tvf": "false"})
    assert not has_functions({})


def test_functions_are_found_by_placement_and_the_default_one_needs_no_entry() -> None:
    found = matched("READ_S", "READ_S_default", "READ_S_eu", "other")
    assert found == MatchedFunctions({"default": "READ_S_default", "eu": "READ_S_eu"})
    assert found.unsettled("S", None) == ""


def test_postgresql_ignores_the_case_of_names_and_reads_protocol_buffers() -> None:
    functions = ["read_json_s_eu", "read_proto_bytes_S_EU", "read_proto_bytes_s_default"]
    found = match_functions("S", POSTGRESQL, streams={"S": True}, placements=["Eu"], functions=functions)
    assert found.functions == {"Eu": "read_proto_bytes_S_EU", "default": "read_proto_bytes_s_default"}


def test_functions_of_a_stream_whose_name_begins_alike_are_not_taken() -> None:
    streams = {"S": True, "S_b": True}
    found = matched("READ_S_default", "READ_S_eu", "READ_S_b_default", "READ_S_b_eu", "READ_S_b", streams=streams)
    assert found == MatchedFunctions({"default": "READ_S_default", "eu": "READ_S_eu"})


@pytest.mark.parametrize(
    ("streams", "placements", "function"),
    [
        ({"S": True, "S_eu": False}, ("eu",), "READ_S_eu"),
        ({"S": True, "S_eu": True}, ("west", "eu_west"), "READ_S_eu_west"),
    ],
)
def test_a_name_that_two_could_own_is_refused_by_name(
    streams: dict[str, bool], placements: tuple[str, ...], function: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"read function {function} could be of change stream S, placement"):
        matched(function, streams=streams, placements=placements)


def test_a_name_of_no_placement_and_a_placement_without_a_function_leave_the_list_incomplete() -> None:
    assert "READ_S_mars begins as those of change stream S" in matched("READ_S_eu", "READ_S_mars").unsettled("S", None)
    missing = matched("READ_S_default")
    assert "no function of placement eu" in missing.unsettled("S", None)
    assert missing.unsettled("S", ["default"]) == ""


def test_a_list_without_the_default_placements_function_is_incomplete_even_if_placements_omit_it() -> None:
    found = matched("READ_S_eu")
    assert "no function of placement default" in found.unsettled("S", None)
    assert found.unsettled("S", ["eu"]) == ""


def test_a_placement_without_a_function_is_refused_with_those_that_are_known() -> None:
    functions = {"default": "READ_S_default", "eu": "READ_S_eu"}
    check_placements(functions, None)
    check_placements(functions, ["eu"])
    with pytest.raises(ConfigurationError, match=r"placement 'us'; known are: default, eu"):
        check_placements(functions, ["us"])
