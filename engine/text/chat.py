"""A model's chat template: messages to one prompt text, in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from surgetank.telemetry.clock import Clock

Message = Mapping[str, Any]  # role, content, and whatever else the template reads


class ChatTemplate:
    """Renders conversations the way the model was trained to read them.

    The helpers that templates expect are those of Hugging Face transformers
    (`utils/chat_template_utils.py`): raise_exception, strftime_now, a tojson without HTML escapes.
    """

    def __init__(self, source: str, clock: Clock, **names: str) -> None:
        """`names`: variables for the template, such as bos_token and eos_token."""
        self._source = source
        self._clock = clock
        self._names = names

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt text. ValueError when there is no template or it does not take these."""
        if not self._source:
            raise ValueError("this model has no chat template; use the completions route")
        try:
            return self._template.render(
                messages=messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                **self._names,
            )
        # A template is a program over the caller's data: it can fail as any program can.
        except Exception as error:
            raise ValueError(f"the chat template refused the messages: {error}") from error

    @cached_property
    def _template(self) -> Template:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime_now
        return environment.from_string(self._source)

    def _strftime_now(self, pattern: str) -> str:
        return datetime.fromtimestamp(self._clock.wall()).strftime(pattern)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort_keys)
