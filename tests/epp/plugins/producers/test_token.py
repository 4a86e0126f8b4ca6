"""token-producer: text becomes pseudo-tokens of four bytes, token ids stay what they are."""

from array import array

import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.plugins.producers.token import TokenProducer
from tests.support.pool import make_plugin, make_request, make_table


def produced(**fields: object) -> TokenizedPrompt | None:
    """What is published for a request with this parsed body."""
    request = make_request(**fields)
    make_plugin(TokenProducer).produce(request, make_table(1).all())
    return request.get(TOKENIZED_PROMPT)


@pytest.mark.parametrize(
    ("text", "data", "tokens"),
    [
        (b"abcd", b"abcd", 1),
        (b"abcde", b"abcde\0\0\0", 2),
        (b"abcdef", b"abcdef\0\0", 2),
        (b"abcdefg", b"abcdefg\0", 2),
    ],
)
def test_text_is_padded_to_whole_pseudo_tokens(text: bytes, data: bytes, tokens: int):
    assert produced(prompt_text=text) == TokenizedPrompt(data, tokens)


def test_token_ids_are_packed_as_they_are():
    assert produced(prompt_tokens=[1, 2**32 - 1]) == TokenizedPrompt(b"\1\0\0\0\xff\xff\xff\xff", 2)
    assert produced(prompt_tokens=[]) == TokenizedPrompt(b"", 0)


def test_each_prompt_of_a_batch_is_padded():
    assert produced(batch=[b"abcde", array("I", [7]).tobytes()]) == TokenizedPrompt(
        b"", 3, [b"abcde\0\0\0", b"\7\0\0\0"]
    )


def test_without_a_prompt_nothing_is_published():
    assert produced() is None


def test_a_prompt_that_is_tokenised_already_is_left_alone():
    request = make_request(prompt_text=b"abcd")
    earlier = TokenizedPrompt(b"1234", 1)
    request.put(TOKENIZED_PROMPT, earlier)
    make_plugin(TokenProducer).produce(request, make_table(1).all())
    assert request.get(TOKENIZED_PROMPT) is earlier


def test_the_estimate_backend_can_be_named():
    make_plugin(TokenProducer, None, {"estimate": {}, "modelName": "m"})


@pytest.mark.parametrize("backend", ["vllm", "udsTokenizerConfig"])
def test_other_backends_are_refused(backend: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(TokenProducer, None, {backend: {"url": "http://localhost:8000"}})
    assert str(caught.value) == (
        f"parameters.{backend}: this backend is not in this build; remove it to use the `estimate` backend"
    )


def test_settings_the_backend_does_not_have_are_refused():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(TokenProducer, None, {"estimate": {"image": {}}})
    assert str(caught.value) == "parameters.estimate.image: unknown field; there are none here"
