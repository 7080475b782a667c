"""Environment variables in a configuration: ``${VAR}`` within its values. Pure.

They are replaced after the YAML is parsed, so that a variable's value is always one value: whatever it holds, it
neither breaks the file nor adds to it. Before that each is masked by characters of a private use area, because the
braces would be YAML's own within ``{...}``.
"""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OPENING, _CLOSING = "\ue000\ue001", "\ue002"
"""As long as what they stand for, so that positions in messages are those of the file."""

_SECRETS = re.compile(r"source\.columns\.hash\..*\.salt|status\.token")
_BARE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")

_MASKED = re.compile(f"{_OPENING}([A-Za-z_][A-Za-z0-9_]*){_CLOSING}")


def masked(text: str) -> str:
    """YAML with its variables as plain characters."""
    return _VARIABLE.sub(rf"{_OPENING}\1{_CLOSING}", text)


def unmasked(text: str) -> str:
    """The text as it was."""
    return _MASKED.sub(r"${\1}", text)


def replaced(node: object, environment: Mapping[str, str], missing: list[str], where: str = "") -> object:
    """Puts the values of the variables into parsed YAML that was masked; names of options have no variables.

    Args:
        node: a mapping, a list, or a value.
        environment: the variables.
        missing: gets a message for each variable that there is not, and for what only looks like one.
        where: the path of the option that holds the node.
    """
    if isinstance(node, dict):
        return {
            unmasked(name) if isinstance(name, str) else name: replaced(
                value, environment, missing, f"{where}.{name}".removeprefix(".")
            )
            for name, value in node.items()
        }
    if isinstance(node, list):
        return [replaced(value, environment, missing, where) for value in node]
    if not isinstance(node, str):
        return node

    if "${" in node and not where.startswith("spark.config."):  # Hadoop's options have variables of their own
        missing.append(
            f"{where}: it has ${{, but no variable: write ${{NAME}}, with letters, digits and underscores;"
            " a default such as ${NAME:-x} is not possible"
        )
    elif _SECRETS.fullmatch(where) and _BARE.fullmatch(node):
        missing.append(f"{where}: it would be a secret that begins with $: a variable is written ${{NAME}}")

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in environment:
            missing.append(f"{where}: the environment has no variable {match[1]}")
        return environment.get(match[1], "")

    return _MASKED.sub(value_of, node)
