"""Blocks of Python in the pages compile, and blocks of YAML are YAML."""

import ast

import pytest
import yaml

from tests.docs.pages import Block, blocks


@pytest.mark.parametrize("block", list(blocks("python")), ids=lambda block: block.place)
def test_a_block_of_python_is_python(block: Block) -> None:
    ast.parse(block.text, block.place)


@pytest.mark.parametrize("block", list(blocks("yaml")), ids=lambda block: block.place)
def test_a_block_of_yaml_is_yaml(block: Block) -> None:
    list(yaml.safe_load_all(block.text))
