"""Blocks of Python compile and import what exists, blocks of YAML are accepted, and no fence is left open."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest
import yaml

from connector.config.loading import Config, validated
from tests.docs.pages import FENCED, Block, blocks, pages


@pytest.mark.parametrize("block", list(blocks("python")), ids=lambda block: block.place)
def test_a_block_of_python_imports_names_that_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text, block.place)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("connector", "spark_sink"):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("block", list(blocks("yaml")), ids=lambda block: block.place)
def test_a_block_of_yaml_is_yaml(block: Block) -> None:
    list(yaml.safe_load_all(block.text))


def configurations() -> Iterator[Block]:
    """Yields the blocks of YAML that are a configuration, or sections of one."""
    for block in blocks("yaml"):
        node = next(iter(yaml.safe_load_all(block.text)))
        if isinstance(node, dict) and node.keys() <= Config.model_fields.keys():
            yield block


@pytest.mark.parametrize("block", list(configurations()), ids=lambda block: block.place)
def test_a_block_of_configuration_is_accepted(block: Block) -> None:
    node = yaml.safe_load(block.text)
    given = node.get("source", {})
    stream = {"database": "database", "change_stream": "Stream"}
    if given.get("edition") != "omni":
        stream |= {"project": "my-project", "instance": "instance"}
    if node.get("sink", {}).get("type") == "bigquery":
        node["sink"] = {"dataset": "replica", **node["sink"]}
    validated({**node, "source": {**stream, **given}})


def test_a_query_of_published_cuts_names_the_sink_and_the_spool() -> None:
    queries = [
        (block.place, statement)
        for block in blocks("sql")
        for statement in block.text.split(";")
        if re.search(r"\b_cuts\b", statement)
    ]
    assert len(queries) >= 6
    for place, statement in queries:
        assert "sink = '" in statement, place
        assert "spool_id = '" in statement, place


def test_every_fence_belongs_to_a_block_that_is_found() -> None:
    assert [page.name for page in pages() if "```" in FENCED.sub("", page.read_text())] == []
