"""Chat templates as model folders hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import InvalidConfig
from octavo_engine.text.chat_template import ChatTemplate, TemplateRefused, load_chat_template

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "hi"}]


def write_config(folder: Path, **config: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_template_renders_with_special_tokens_and_generation_prompt(tmp_path: Path) -> None:
    write_config(tmp_path, chat_template=CHATML, eos_token={"content": "</s>"})
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "<|im_start|>user\nhi</s>\n<|im_start|>assistant\n"


def test_template_is_none_when_the_folder_has_none(tmp_path: Path) -> None:
    write_config(tmp_path, bos_token="<s>")
    assert load_chat_template(tmp_path) is None


def test_template_file_goes_before_the_config(tmp_path: Path) -> None:
    write_config(tmp_path, chat_template="old")
    (tmp_path / "chat_template.jinja").write_text("new")
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "new"


def test_template_default_is_chosen_among_named_ones(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    write_config(tmp_path, chat_template=named)
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "plain"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("{{ raise_exception('roles must alternate') }}", "roles must alternate", id="refusal"),
        pytest.param("{{ messages[0]['content'] + 1 }}", "TypeError", id="wrong types"),
        pytest.param("{{ messages.append(1) }}", "unsafe", id="sandbox forbids changes"),
        pytest.param("{{ ''.__class__.__mro__ }}", "unsafe", id="sandbox forbids internals"),
    ],
)
def test_template_refuses_with_its_own_words(source: str, words: str) -> None:
    with pytest.raises(TemplateRefused, match=words):
        ChatTemplate(source, {}).render(HELLO)


def test_template_with_a_syntax_error_is_refused_when_loaded() -> None:
    with pytest.raises(InvalidConfig, match="chat template"):
        ChatTemplate("{% for %}", {})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("{% generation %}a{% endgeneration %}b", "ab", id="generation block"),
        pytest.param("{% for m in messages %}{% break %}{% endfor %}x", "x", id="loop controls"),
        pytest.param("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}', id="json is not escaped for HTML"),
        pytest.param("{{ strftime_now('%Y')[:2] }}", "20", id="date"),
        pytest.param("{{ thinking }}", "True", id="extra values"),
    ],
)
def test_template_environment_is_that_of_transformers(source: str, expected: str) -> None:
    assert ChatTemplate(source, {}).render(HELLO, {"thinking": True}) == expected
