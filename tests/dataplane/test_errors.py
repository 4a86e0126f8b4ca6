"""What a client sees of an error, and what an operator sees of a wrong configuration."""

import json

import pytest

from dataplane.errors import (
    BadRequestError,
    ConfigError,
    DeadlineExceededError,
    InternalError,
    NotFoundError,
    PayloadTooLargeError,
    PreconditionFailedError,
    RequestError,
    ResourceExhaustedError,
    ServiceUnavailableError,
    did_you_mean,
    openai_error,
)
from dataplane.extproc.exchange import rejection
from dataplane.headers import DROPPED_REASON

ALL = [
    # error, status, code counted, type and code in the body, retry-after, dropped reason
    (BadRequestError, 400, "BadRequest", "invalid_request_error", None, None, ""),
    (NotFoundError, 404, "NotFound", "invalid_request_error", "model_not_found", None, ""),
    (
        PreconditionFailedError,
        412,
        "PreconditionFailed",
        "invalid_request_error",
        "precondition_failed",
        None,
        "",
    ),
    (PayloadTooLargeError, 413, "PayloadTooLarge", "invalid_request_error", "request_too_large", None, ""),
    (ResourceExhaustedError, 429, "ResourceExhausted", "rate_limit_error", None, 1, "rejected-saturated"),
    (InternalError, 500, "Internal", "server_error", None, None, ""),
    (ServiceUnavailableError, 503, "ServiceUnavailable", "server_error", None, 1, "rejected-no-endpoints"),
    (DeadlineExceededError, 504, "DeadlineExceeded", "timeout_error", None, None, ""),
]


@pytest.mark.parametrize(("error", "status", "code", "error_type", "body_code", "retry_s", "reason"), ALL)
def test_rejection_of_every_error(error, status, code, error_type, body_code, retry_s, reason):
    reject = rejection(error("what happened"))
    assert reject.status == status
    assert reject.details == f"pointsman_{code}"
    assert json.loads(reject.body) == {
        "error": {"message": "what happened", "type": error_type, "param": None, "code": body_code}
    }
    expected = [("content-type", b"application/json")]
    if retry_s is not None:
        expected.append(("retry-after", b"%d" % retry_s))
    if reason:
        expected.append((DROPPED_REASON, reason.encode()))
    assert list(reject.headers) == expected


def test_every_error_is_in_the_table():
    known = {error for error in RequestError.__subclasses__() if error.__module__ == RequestError.__module__}
    assert {error for error, *_ in ALL} == known


def test_one_error_can_say_more_than_its_class():
    error = ResourceExhaustedError(
        "later", dropped_reason="ttl-expired", param="model", error_code="queue_timeout", retry_after_s=30
    )
    reject = rejection(error)
    assert dict(reject.headers)["retry-after"] == b"30"
    assert dict(reject.headers)[DROPPED_REASON] == b"ttl-expired"
    assert json.loads(reject.body)["error"] == {
        "message": "later",
        "type": "rate_limit_error",
        "param": "model",
        "code": "queue_timeout",
    }
    assert rejection(ResourceExhaustedError("later")).headers[1] == ("retry-after", b"1")


def test_retry_after_of_zero_is_said():
    assert ("retry-after", b"0") in rejection(ServiceUnavailableError("now", retry_after_s=0)).headers


def test_error_is_its_message():
    assert str(NotFoundError("no such model")) == "no such model"
    assert repr(NotFoundError("no such model")) == "NotFoundError('no such model')"


@pytest.mark.parametrize("quoted", [b"caf\xe9".decode("utf-8", "surrogateescape"), "caf\ud800"])
def test_message_that_quotes_undecodable_bytes_is_still_json(quoted: str):
    error = NotFoundError(f'model "{quoted}" does not exist', param=quoted, error_code=quoted)
    fields = json.loads(rejection(error).body)["error"]
    assert fields["message"] == 'model "caf?" does not exist'
    assert (fields["param"], fields["code"]) == ("caf?", "caf?")


def test_openai_error_keeps_other_text():
    assert json.loads(openai_error('é "quoted"\n', "t"))["error"]["message"] == 'é "quoted"\n'


# -- configuration ----------------------------------------------------------------------------------------


def test_config_error_names_its_place():
    assert str(ConfigError("is not a number", path="plugins[2].parameters.cap")) == (
        "plugins[2].parameters.cap: is not a number"
    )
    assert str(ConfigError("is empty")) == "is empty"


@pytest.mark.parametrize(
    ("path", "placed"), [("", "plugins"), ("cap", "plugins.cap"), ("[2].cap", "plugins[2].cap")]
)
def test_config_error_can_be_placed_below_a_prefix(path: str, placed: str):
    error = ConfigError("is wrong", path=path).within("plugins")
    assert (error.path, error.message, str(error)) == (placed, "is wrong", f"{placed}: is wrong")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("queue-scorrer", ' (did you mean "queue-scorer"?)'), ("zzz", ""), ("", "")],
)
def test_suggestion_is_made_when_a_known_word_is_close(word: str, hint: str):
    assert did_you_mean(word, iter(["queue-scorer", "kv-cache-utilization-scorer"])) == hint


def test_nothing_is_suggested_for_a_word_too_long_to_be_a_typing_error():
    assert did_you_mean("a" * 64, ["a" * 63]) == f' (did you mean "{"a" * 63}"?)'
    assert did_you_mean("a" * 65, ["a" * 64]) == ""
