"""Blocks of Python in the pages compile and import what exists, blocks of YAML are YAML, and no fence is left open."""

import ast
import importlib

import pytest
import yaml

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


def test_every_fence_belongs_to_a_block_that_is_found() -> None:
    assert [page.name for page in pages() if "```" in FENCED.sub("", page.read_text())] == []
