"""Two configurations compared: the options that differ, and what a reload makes of each. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from connector.config.backfill_rules import BackfillRules
from connector.config.loading import Config
from connector.config.reloading.fields import Outcome, outcome_of
from connector.config.sections import Section


def outcomes(before: Config, after: Config) -> Mapping[str, Outcome]:
    """The outcome of each option that differs, by its dotted name, sorted.

    Args:
        before: the configuration of the running daemon.
        after: the edited one.
    """
    old, new = dict(options_of(before)), dict(options_of(after))
    changed = (name for name in old.keys() | new.keys() if name not in old or name not in new or old[name] != new[name])
    on_executors = before.source.reader == "executors"
    return {name: outcome_of(name, on_executors=on_executors) for name in sorted(changed)}


def options_of(config: Config) -> Iterator[tuple[str, object]]:
    """The options of a configuration by their dotted names."""
    for name in Config.model_fields:
        value = getattr(config, name)
        if not isinstance(value, Section):
            yield name, value
            continue
        for option in type(value).model_fields:
            found = getattr(value, option)
            if (name, option) == ("source", "backfill"):
                yield "source.backfill", found is not None
                for rule in fields(BackfillRules):
                    yield f"source.backfill.{rule.name}", getattr(found or BackfillRules(), rule.name)
            else:
                yield f"{name}.{option}", found
