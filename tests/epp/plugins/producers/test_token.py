"""token-producer: text becomes pseudo-tokens of four bytes, token ids stay what they are."""

from array import array

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.interfaces.request import MediaKind, Medium
from epp.plugins.producers.token import TokenProducer, render_path
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
    assert make_plugin(TokenProducer, None, {"estimate": {}}).warnings == []


def test_a_model_means_nothing_to_the_estimate_and_that_is_said():
    plugin = make_plugin(TokenProducer, None, {"modelName": "m"})
    assert plugin.warnings == ["modelName has no effect: the estimate backend counts alike for every model"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"udsTokenizerConfig": {}},
            "udsTokenizerConfig: this backend is not in this build; use `vllm`, or remove it",
        ),
        ({"vllm": {}, "estimate": {}}, "vllm: excludes estimate; name one backend"),
        (
            {"vllm": {"url": "render:8000"}},
            "vllm.url: 'render:8000' is no address of a server; write http://host:port",
        ),
        (
            {"vllm": {"url": "http://render:port"}},
            "vllm.url: 'http://render:port' is no address of a server; write http://host:port",
        ),
        ({"vllm": {"timeout": "0s"}}, "vllm.timeout: '0s' is out of range; use more than 0s"),
        (
            {"vllm": {"mmTimeout": "5"}},
            "vllm.mmTimeout: '5' is not a duration; write a number and a unit, such as 50ms, 2s or 1m30s",
        ),
    ],
)
def test_wrong_backends_are_refused(parameters: dict[str, object], message: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(TokenProducer, None, parameters)
    assert str(caught.value).startswith(f"parameters.{message}")


def test_settings_the_backend_does_not_have_are_refused():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(TokenProducer, None, {"estimate": {"images": {}}})
    assert str(caught.value) == 'parameters.estimate.images: unknown field (did you mean "image"?)'


DIGEST = "0123456789abcdef"


def with_media(*media: Medium, headers: dict[str, str] | None = None, **estimate: object) -> TokenizedPrompt:
    """The tokens of ``ab<medium>cd<medium>...``."""
    text = b"ab"
    for medium in media:
        medium.offset = len(text)
        text += medium.digest.encode() + b"cd"
    request = make_request(prompt_text=text, media=list(media))
    request.headers = Headers.of((headers or {}).items())
    make_plugin(TokenProducer, None, {"estimate": estimate}).produce(request, make_table(1).all())
    prompt = request.get(TOKENIZED_PROMPT)
    assert prompt is not None
    assert prompt.tokens * 4 == len(prompt.data)
    return prompt


def test_an_image_stands_for_its_tokens():
    prompt = with_media(Medium(MediaKind.IMAGE, DIGEST, width=64, height=96))
    assert prompt.data == b"ab" + DIGEST.encode() + DIGEST[:8].encode() + b"cd"
    assert with_media(Medium(MediaKind.IMAGE, DIGEST)).tokens == 226


def test_settings_say_how_many():
    static = {"mode": "static", "static": {"staticToken": 9}}
    assert with_media(Medium(MediaKind.IMAGE, DIGEST, width=64, height=96), image=static).tokens == 10


def test_headers_speak_of_videos():
    video = Medium(MediaKind.VIDEO, DIGEST)
    headers = {"x-llm-d-video-duration-seconds": "2", "x-llm-d-video-resolution": "64x32"}
    assert with_media(video).tokens == 4501
    assert with_media(video, headers=headers).tokens == 9


def test_equal_beginnings_have_equal_tokens():
    def image(digest: str) -> Medium:
        return Medium(MediaKind.IMAGE, digest, width=64, height=96)

    one, two = with_media(image(DIGEST), image(DIGEST)), with_media(image(DIGEST), image("f" * 16))
    assert one.data[:28] == two.data[:28] == b"ab" + DIGEST.encode() + DIGEST[:8].encode() + b"cd"
    assert one.data[28:] != two.data[28:]


def test_media_beyond_the_limit_stand_for_their_digest():
    videos = [Medium(MediaKind.VIDEO, f"{i:016x}") for i in range(3)]
    headers = {"x-llm-d-video-duration-seconds": "1000"}
    prompt = with_media(*videos, headers=headers)
    whole = 225 * 2000
    assert prompt.tokens == 2 * whole + (len(b"ab") + 3 * len(b"cd") + len(DIGEST)) // 4
    assert prompt.data.rstrip(b"\0").endswith(b"cd" + videos[2].digest.encode() + b"cd")


async def test_a_successor_keeps_the_connections_to_the_same_server_and_goes_on_counting():
    vllm = {"vllm": {"url": "http://127.0.0.1:9"}}
    old, same = make_plugin(TokenProducer, None, vllm), make_plugin(TokenProducer, None, vllm)
    client = old._client
    request = make_request(prompt_text=b"abcd")
    await old.prepare(request)
    assert request.get(TOKENIZED_PROMPT) is None
    same.inherit(old)
    await old.close()
    assert same._client is client
    assert dict(same.metric_series("prompt_renderings_total")) == {
        ("rendered",): 0,
        ("failed",): 1,
        ("skipped",): 0,
    }
    other = make_plugin(TokenProducer, None, {"vllm": {"url": "http://127.0.0.1:8"}})
    own = other._client
    other.inherit(same)
    assert other._client is own
    await same.close()
    await other.close()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", "/v1/chat/completions/render"),
        ("/base/v1/completions/", "/v1/completions/render"),
        ("/v1/messages", "/v1/messages/render"),
        ("/v1/responses", "/v1/responses/render"),
        ("/v1/messages/count_tokens", None),
        ("/v1/chat/completions/render", None),
        ("/v1/xcompletions", None),
        ("/v1/embeddings", None),
    ],
)
def test_prompts_are_rendered_where_a_server_can(path: str, asked: str | None):
    request = make_request(prompt_text=b"abcd")
    request.path = path
    assert render_path(request) == asked
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"1234", 1))
    assert render_path(request) is None
