"""Groups of options. If the type of a command's parameter is a dataclass, each field of the dataclass is an option.

Fields are declared like the parameters of commands: a type that is annotated with an option, and a default.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


def expand(app: typer.Typer) -> None:
    """Replaces the groups of each command of an app by their options, also in families of commands."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = expanded(command.callback)
    if app.registered_callback is not None and app.registered_callback.callback is not None:
        app.registered_callback.callback = expanded(app.registered_callback.callback)
    for family in app.registered_groups:
        if family.typer_instance is not None:
            expand(family.typer_instance)


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a command that takes the fields of the groups as single options, and passes groups to `command`."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }
    if not groups:
        return command

    @wraps(command)
    def run(**values: Any) -> Any:
        found = {
            name: group(**{each.name: values.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **found)

    parameters = [
        option
        for each in signature.parameters.values()
        for option in (_options(each.annotation) if each.name in groups else [each])
    ]
    by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = signature.replace(parameters=by_name)  # type: ignore[attr-defined]
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    """Returns a parameter for each field of a group."""
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(group)
    ]
