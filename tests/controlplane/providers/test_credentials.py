"""Provider credentials: secrets go in, are encrypted, and never come out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, ForbiddenError, InvalidError
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Actor, Role
from controlplane.core.users import SYSTEM
from controlplane.providers import credentials, encryption
from controlplane.providers.credentials import CredentialService, rotate_key
from controlplane.providers.models import ProviderCredential
from tests.support.controlplane import CREDENTIAL, OPERATOR, PROVIDER, VIEWER, client, example

pytestmark = pytest.mark.django_db

SERVICE = CredentialService()
SECRET = "sk-very-secret-0123456789"
AWS = "[default]\naws_access_key_id = AKIA\naws_secret_access_key = shh\n"
GCP = json.dumps({"type": "service_account", "client_email": "a@b", "private_key": "shh"})


@pytest.fixture(autouse=True)
def keys_file(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.ENCRYPTION_KEYS = []
    settings.ENCRYPTION_KEYS_FILE = tmp_path / "encryption-keys"
    yield settings.ENCRYPTION_KEYS_FILE
    assert [path.name for path in tmp_path.iterdir() if path.name != "encryption-keys"] == []


def with_secret(secret: str = SECRET, name: str = "openai-key", **spec: Any) -> dict[str, Any]:
    document = example("ProviderCredential", name)
    document["spec"] = {"type": "APIKey", **spec, "secret": secret}
    return document


def held(name: str = "openai-key") -> str:
    """The secret as whoever has the keys reads it."""
    return encryption.cipher().decrypt(ProviderCredential.objects.get(name=name).secret.encode()).decode()


def test_a_secret_is_encrypted_and_shown_nowhere(keys_file: Path) -> None:
    api = client(Role.OPERATOR)
    made = api.post("/api/v1/providercredentials", with_secret(), format="json")
    assert made.status_code == 201
    status = made.json()["status"]
    assert (status["hasSecret"], len(status["fingerprint"])) == (True, 16)
    assert held() == SECRET
    paths = ("providercredentials", "providercredentials/openai-key", "export", "audit")
    shown = [made.content.decode(), *(api.get(f"/api/v1/{path}").content.decode() for path in paths)]
    kept = json.dumps([*ProviderCredential.objects.values(), *AuditEntry.objects.values()], default=str)
    assert not [text for text in (*shown, kept) if SECRET in text]
    assert keys_file.stat().st_mode & 0o777 == 0o600


def test_a_document_without_the_secret_leaves_it(keys_file: Path) -> None:
    SERVICE.create(OPERATOR, with_secret())
    before = ProviderCredential.objects.get()
    apply(OPERATOR, export(VIEWER))
    apply(OPERATOR, [CREDENTIAL])
    after = ProviderCredential.objects.get()
    assert (after.secret, after.fingerprint) == (before.secret, before.fingerprint)
    assert (after.version, held()) == (2, SECRET)


def test_a_new_secret_shows_as_another_fingerprint_and_the_same_one_as_no_change() -> None:
    SERVICE.create(OPERATOR, with_secret())
    (step,) = apply(OPERATOR, [with_secret()]).steps
    assert step.action == "unchanged"
    (step,) = apply(OPERATOR, [with_secret("another")]).steps
    assert {change.path for change in step.changes} == {"status.fingerprint", "status.lastRotatedAt"}
    assert held() == "another"
    assert "another" not in str(step)


def test_a_credential_without_secret_says_so() -> None:
    row = SERVICE.create(OPERATOR, CREDENTIAL)
    assert SERVICE.document(row)["status"] == {"hasSecret": False}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "APIKey", "secret": f"{SECRET}\n"}, "spec.secret: must be printable ASCII without blanks"),
        ({"type": "APIKey", "secret": 5}, "spec.secret: expected str, got int"),
        ({"type": "APIKey", "region": "eu"}, "spec.region: means nothing for APIKey"),
        ({"type": "AWSCredentials", "secret": AWS}, "spec.region: is required for AWSCredentials"),
        (
            {"type": "AWSCredentials", "region": "eu-west-1", "secret": f"{SECRET}\nx"},
            "spec.secret: must be a credentials file",
        ),
        (
            {"type": "AWSCredentials", "region": "eu-west-1", "profile": "other", "secret": AWS},
            "spec.secret: must be a credentials file with aws_access_key_id and aws_secret_access_key in [ot",
        ),
        (
            {"type": "GCPCredentials", "region": "r", "projectName": "p", "secret": f'{{"a": "{SECRET}"}}'},
            "spec.secret: must be a service account's key file",
        ),
        ({"type": "AzureCredentials", "clientID": "c"}, "spec.tenantID: is required for AzureCredentials"),
    ],
)
def test_mistakes_are_told_without_repeating_the_secret(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidError) as caught:
        SERVICE.create(OPERATOR, example("ProviderCredential") | {"spec": spec})
    (detail,) = caught.value.details
    assert f"{detail.path}: {detail.message}".startswith(problem)
    assert SECRET not in json.dumps(caught.value.body())
    assert not ProviderCredential.objects.exists()


def test_secrets_of_clouds_are_taken() -> None:
    SERVICE.create(OPERATOR, with_secret(AWS, "aws", type="AWSCredentials", region="eu-west-1"))
    SERVICE.create(OPERATOR, with_secret(GCP, "gcp", type="GCPCredentials", region="r", projectName="p"))
    assert (held("aws"), held("gcp")) == (AWS, GCP)


def test_the_type_stays_and_what_a_provider_needs_too() -> None:
    apply(OPERATOR, [with_secret(), PROVIDER])
    with pytest.raises(InvalidError, match="is APIKey and stays"):
        SERVICE.update(OPERATOR, "openai-key", with_secret(type="AzureAPIKey"))
    with pytest.raises(ConflictError, match="is named by Provider openai"):
        SERVICE.delete(OPERATOR, "openai-key")
    assert held() == SECRET


def test_a_rotation_encrypts_everything_with_a_new_key_and_drops_the_one_before_the_last(
    keys_file: Path,
) -> None:
    SERVICE.create(OPERATOR, with_secret())
    SERVICE.create(OPERATOR, CREDENTIAL | {"metadata": {"name": "empty"}})
    (first,) = keys_file.read_text().split()
    assert rotate_key(SYSTEM) == 1
    second, kept = keys_file.read_text().split()
    assert (kept, second != first, held()) == (first, True, SECRET)
    Fernet(second).decrypt(ProviderCredential.objects.get(name="openai-key").secret.encode())
    rotate_key(SYSTEM)
    assert (keys_file.read_text().split()[1], held()) == (second, SECRET)
    assert keys_file.stat().st_mode & 0o777 == 0o600
    entry = AuditEntry.objects.first()
    assert (entry.action, entry.kind, entry.after) == ("rotate", "EncryptionKey", {"secrets": 1})
    assert ProviderCredential.objects.get(name="openai-key").version == 1


def test_keys_in_the_environment_come_first(settings: Any, keys_file: Path) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [old]
    SERVICE.create(OPERATOR, with_secret())
    settings.ENCRYPTION_KEYS = [new, old]
    assert rotate_key(SYSTEM) == 1
    settings.ENCRYPTION_KEYS = [new]
    assert (held(), keys_file.exists()) == (SECRET, False)


def test_a_lost_key_is_told_and_giving_the_secret_anew_helps(keys_file: Path) -> None:
    SERVICE.create(OPERATOR, with_secret())
    lost = ProviderCredential.objects.get().secret
    encryption.write([Fernet.generate_key().decode()])
    before = keys_file.read_text()
    with pytest.raises(ConflictError, match="reads the secrets of openai-key"):
        rotate_key(SYSTEM)
    assert (keys_file.read_text(), ProviderCredential.objects.get().secret) == (before, lost)
    apply(OPERATOR, [with_secret()])
    assert held() == SECRET


def test_only_administrators_rotate_the_key(keys_file: Path) -> None:
    with pytest.raises(ForbiddenError):
        rotate_key(OPERATOR)
    assert not keys_file.exists()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [("no key", 0o600, "holds what is no key"), ("", 0o600, "is empty"), ("x", 0o644, "chmod 600")],
)
def test_a_file_that_is_no_key_file_is_told_and_nothing_written(
    keys_file: Path, text: str, mode: int, said: str
) -> None:
    keys_file.write_text(text)
    keys_file.chmod(mode)
    answer = client().post("/api/v1/providercredentials", with_secret(), format="json")
    assert (answer.status_code, answer.json()["code"]) == (503, "encryption_key")
    assert said in answer.json()["message"]
    assert not ProviderCredential.objects.exists()
    assert keys_file.read_text() == text


def test_a_rotation_that_is_killed_loses_nothing_and_the_next_one_ends_it(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(OPERATOR, [with_secret()])
    first = keys_file.read_text().split()
    with monkeypatch.context() as patch:
        patch.setattr(credentials, "_encrypt_all", killed)
        with pytest.raises(KeyboardInterrupt):
            rotate_key(SYSTEM)
    assert keys_file.read_text().split()[1:] == first
    assert held() == SECRET
    assert rotate_key(SYSTEM) == 1
    present = keys_file.read_text().split()[0]
    token = ProviderCredential.objects.get().secret
    assert Fernet(present).decrypt(token) == SECRET.encode()
    assert present not in first


def killed(actor: Actor) -> int:
    raise KeyboardInterrupt
