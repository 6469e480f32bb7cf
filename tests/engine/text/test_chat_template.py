"""Chat templates: rendered as models expect, fenced in, and clear when they fail."""

import pytest
from tests.fakes import tiny_card

from surgetank.engine.text.chat import ChatTemplate
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.clock import ManualClock

HELLO = [{"role": "user", "content": "hi"}]


def render(source: str, **options: object) -> str:
    template = ChatTemplate(source, ManualClock(), bos_token="<s>", eos_token="</s>")
    return template.render(HELLO, **options)  # type: ignore[arg-type]


def test_chatml_and_the_generation_prompt() -> None:
    codec = TextCodec(tiny_card())
    expected = "<|im_start|>user\nhi<|im_end|>\n"
    prompt = codec.encode_chat(HELLO, add_generation_prompt=False)
    assert prompt == codec.encode(expected)
    assert codec.encode_chat(HELLO) == codec.encode(f"{expected}<|im_start|>assistant\n")


def test_the_template_alone_decides_on_bos() -> None:
    codec = TextCodec(tiny_card(add_bos=True, chat_template="{{ bos_token }}x"))
    assert codec.encode_chat(HELLO) == codec.encode("x")
    codec = TextCodec(tiny_card(add_bos=True, chat_template="x"))
    assert codec.encode_chat(HELLO) == codec.encode("x")[1:]


def test_blocks_are_trimmed_as_transformers_does() -> None:
    assert render("  {% if true %}\n  a\n  {% endif %}\nb") == "  a\nb"


def test_helpers_that_templates_expect() -> None:
    assert render("{{ messages[0] | tojson }}") == '{"role": "user", "content": "hi"}'
    assert render("{{ '<é>' | tojson }}") == '"<é>"'
    assert render("{{ strftime_now('%Y-%m') }}") == "2023-11"
    assert (
        render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "01"
    )
    assert render("{{ bos_token }}{{ eos_token }}") == "<s></s>"
    assert render("{{ tools[0].name }}", tools=[{"name": "t"}]) == "t"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "no chat template; use the completions route"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "refused the messages: Expected an expression"),
        ("{{ messages[0].content + 1 }}", "refused the messages"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ range(10**9) | list | length }}", "range too big"),
    ],
)
def test_failures_are_value_errors_with_a_sentence(source: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="template") as caught:
        render(source)
    assert sentence.lower() in str(caught.value).lower()
