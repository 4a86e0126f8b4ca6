"""The control plane through the command: set up, served, changed over HTTP, and read by a picker."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.support.controlplane_command import Command, serving
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

DOCUMENTS = """
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool}
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}]}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: interactive}
spec: {poolRef: {name: pool}, priority: 10}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: chat}
spec:
  poolRef: {name: pool}
  rules: [{matches: [{model: {value: chat}}], targets: [{modelRewrite: llama}]}]
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def served(command: Command, tmp_path: Path) -> Iterator[Command]:
    """A control plane that answers, and its administrator's token in the environment."""
    with serving(command, tmp_path / "log") as answering:
        yield answering


def test_the_first_start_makes_an_administrator_once(command: Command, tmp_path: Path) -> None:
    said = command.says("controlplane", "init")
    assert said.startswith("administrator admin; this token is shown once:\npmt_")
    assert command.says("controlplane", "init") == "the database is up to date\n"
    key = tmp_path / "state" / "secret-key"
    assert (key.stat().st_mode & 0o777, (tmp_path / "state").stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("served", [("serve",), ("serve-xds",), ("run-fleet",), ("user", "ada")])
def test_a_database_of_an_older_release_is_refused(
    command: Command, tmp_path: Path, served: tuple[str, ...]
) -> None:
    command.begins()
    file = tmp_path / "state" / "database.sqlite3"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM django_migrations WHERE app = 'usage'")
        before = [*connection.execute("SELECT app, name FROM django_migrations")]
    refused = command.refusal("controlplane", *served)
    assert re.fullmatch(
        r"pointsman controlplane: error: the database lacks \d+ changes of this release, "
        r"from usage 0001_initial on; run 'pointsman controlplane init' first, .*\n",
        refused,
    )
    with closing(sqlite3.connect(file)) as connection:
        assert [*connection.execute("SELECT app, name FROM django_migrations")] == before


def test_commands_without_a_database_say_what_to_do(command: Command, tmp_path: Path) -> None:
    assert "run 'pointsman controlplane init' first" in command.refusal("controlplane", "user", "ada")
    assert not (tmp_path / "state" / "database.sqlite3").exists()
    command.environment["POINTSMAN_SECRET_KEY"] = "short"
    assert command.refusal("controlplane", "init") == (
        "pointsman controlplane: error: POINTSMAN_SECRET_KEY: is shorter than 32 characters\n"
    )


def test_documents_go_in_are_shown_and_reach_a_picker(served: Command, tmp_path: Path) -> None:
    created = (
        "+ InferencePool pool: create\n"
        "+ InferenceObjective interactive: create\n"
        "+ InferenceModelRewrite chat: create\n"
    )
    assert served.says("diff", "-", text=DOCUMENTS) == created
    assert served.says("export") == ""
    assert served.says("apply", "-", text=DOCUMENTS) == created
    changed = DOCUMENTS.replace("priority: 10", "priority: 20")
    assert served.says("apply", "-", text=changed).splitlines() == [
        "  InferencePool pool: unchanged",
        "~ InferenceObjective interactive: update",
        "    spec.priority: 10 -> 20",
        "  InferenceModelRewrite chat: unchanged",
    ]
    assert "resourceVersion: '2'" in served.says("get", "objectives", "interactive")
    assert served.says("get", "InferenceModelRewrite").count("kind: InferenceModelRewrite") == 1

    exported = tmp_path / "objects.yaml"
    exported.write_text(served.says("export"))
    assert "update" not in served.says("diff", str(exported))
    exported.write_text(served.says("export", "objectives", "InferenceModelRewrite"))
    assert served.says("epp", "validate", str(exported)) == (
        f"{exported}: ok (1 InferenceObjective, 1 InferenceModelRewrite)\n"
    )


def test_refusals_name_every_place_and_change_nothing(served: Command, tmp_path: Path) -> None:
    wrong = DOCUMENTS.replace("priority: 10", "priority: high").replace("value: chat", "value: ''")
    refused = served.refusal("apply", "-", text=wrong)
    told = [line.removeprefix("pointsman apply: error: ") for line in refused.splitlines()]
    assert told == [
        "documents[1].spec.priority: expected int, got str",
        "documents[2].spec.rules[0].matches[0].model.value: expected str of length >= 1",
    ]
    assert served.says("export") == ""
    alone = served.run("diff", "-", text=DOCUMENTS.partition("---")[2])
    assert (alone.returncode, len(alone.stdout.splitlines())) == (0, 2)
    assert alone.stderr.startswith(
        "warning: documents[0].spec.poolRef.name: there is no InferencePool pool yet; until then"
    )
    assert served.refusal("get", "nonsense").startswith(
        "pointsman get: error: nonsense is no kind; there are pools, endpointlists, objectives, "
    )
    assert served.refusal("export", "poolz").startswith(
        'pointsman export: error: poolz is no kind (did you mean "pools"?); there are pools, '
    )
    served.environment["POINTSMAN_TOKEN"] = "pmt_€"
    assert "holds characters that no token has" in served.refusal("export")
    served.environment["POINTSMAN_TOKEN"] = "pmt_wrong"
    assert "the token is not known" in served.refusal("export")
    del served.environment["POINTSMAN_TOKEN"]
    assert "set POINTSMAN_TOKEN to an API token" in served.refusal("export")
    done = served.run("apply", str(tmp_path / "nowhere.yaml"))
    assert (done.returncode, "nowhere.yaml: No such file" in done.stderr) == (2, True)


def test_files_are_read_in_every_form_and_what_is_none_is_named(served: Command, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    documents = list(yaml.safe_load_all(DOCUMENTS))
    one.write_text(yaml.safe_dump(documents[0]), encoding="utf-8-sig")
    two.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents[1:]}))
    assert served.says("apply", str(one), "-f", str(two)).count(": create\n") == 3
    assert (
        served.says("apply", "--dry-run", "-f", "-", text=served.says("export")).split()[2::3]
        == ["unchanged"] * 3
    )
    empty = served.run("apply", "-", text="# nothing\n")
    assert (empty.returncode, empty.stderr) == (0, "there are no documents in what is to be applied\n")
    assert served.refusal("apply") == (
        "pointsman apply: error: name at least one file of documents; - is stdin\n"
    )
    one.write_bytes(b"a: \xff")
    assert served.refusal("apply", str(one)) == (
        f"pointsman apply: error: {one}: is no UTF-8 text (byte 3)\n"
    )
    one.write_bytes(b" " * (8 * 1024 * 1024 + 1))
    assert served.refusal("diff", str(one)) == (
        f"pointsman diff: error: {one}: at most 8388608 bytes are applied at once\n"
    )
    one.write_text("a: [1,\n")
    assert served.refusal("apply", "-f", str(one)).startswith(
        "pointsman apply: error: document 1 (from line 1): line 2, column 1: "
    )
    for address, problem in (
        ("http://127.0.0.1:1", "cannot be reached"),
        ("ftp://x", "no http or https URL"),
    ):
        assert problem in served.refusal("apply", "--url", address, str(two))


def test_roles_and_revocation_hold_at_once(served: Command) -> None:
    admin = served.environment["POINTSMAN_TOKEN"]
    assert served.says("controlplane", "user", "ada", "--role", "viewer") == "ada is viewer\n"
    served.environment["POINTSMAN_TOKEN"] = served.says("controlplane", "token", "ada", "laptop").strip()
    assert "write of InferencePool needs the role operator" in served.refusal("apply", "-", text=DOCUMENTS)
    served.says("controlplane", "user", "ada", "--role", "operator")
    served.says("apply", "-", text=DOCUMENTS)
    served.says("controlplane", "token", "ada", "laptop", "--revoke")
    assert "the token is not known" in served.refusal("export")
    served.environment["POINTSMAN_TOKEN"] = admin
    assert "interactive" in served.says("export")


def test_keys_are_made_rotated_and_revoked(served: Command) -> None:
    tenant = "{apiVersion: pointsman.dev/v1, kind: Tenant, metadata: {name: research}, spec: {}}"
    served.says("apply", "-", text=tenant)
    made = served.says("key", "create", "laptop", "--tenant", "research", "--requests-per-minute", "60")
    assert made.startswith("sk-pm-")
    shown = served.says("get", "virtualkeys", "laptop")
    assert ("requestsPerMinute: 60" in shown, made.strip() in shown) == (True, False)
    rotated = served.run("key", "rotate", "laptop", "--grace", "1h")
    assert (rotated.returncode, rotated.stdout.startswith("sk-pm-")) == (0, True)
    assert rotated.stderr.startswith("the old key holds until ")
    assert "the key before the present one holds until" in served.refusal("key", "rotate", "laptop")
    assert served.says("key", "revoke", "laptop") == "key laptop is revoked\n"
    assert "VirtualKey laptop is revoked; make a new key" in served.refusal("key", "rotate", "laptop")
    assert "there is no Tenant nobody" in served.refusal("key", "create", "other", "--tenant", "nobody")
    exported = served.says("export")
    assert "update" not in served.says("diff", "-", text=exported)
    assert served.says("get", "tenants").count("kind: Tenant") == 1


def test_what_fails_is_in_the_log_with_its_reason(served: Command, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state" / "database.sqlite3")) as database:
        database.execute("DROP TABLE tenancy_virtualkey")
    assert served.refusal("get", "virtualkeys") == (
        "pointsman get: error: the control plane failed; its log says why\n"
    )
    log = (tmp_path / "log").read_text()
    assert "no such table: tenancy_virtualkey" in log
    assert "Traceback (most recent call last)" in log


def test_secrets_go_in_and_are_encrypted_anew(served: Command, tmp_path: Path) -> None:
    credential = "{apiVersion: pointsman.dev/v1, kind: ProviderCredential, metadata: {name: key}, spec: %s}"
    served.says("apply", "-", text=credential % "{type: APIKey, secret: sk-hidden}")
    provider = "{apiVersion: pointsman.dev/v1, kind: Provider, metadata: {name: openai}, spec: %s}"
    served.says("apply", "-", text=provider % "{type: openai, credentialRef: {name: key}}")
    keys = tmp_path / "state" / "encryption-keys"
    before = keys.read_text()
    assert served.says("controlplane", "rotate-encryption-key") == (
        "secrets encrypted with the present key: 1\n"
    )
    assert (keys.read_text().split()[1], keys.stat().st_mode & 0o777) == (before.strip(), 0o600)
    shown = served.says("get", "providercredentials", "key")
    assert ("hasSecret: true" in shown, "sk-hidden" in shown) == (True, False)
    changed = served.says("apply", "-", text=credential % "{type: APIKey, secret: sk-other}")
    assert ("status.fingerprint: " in changed, "sk-" in changed) == (True, False)
    assert "sk-hidden" not in (tmp_path / "state" / "database.sqlite3").read_bytes().decode("latin-1")


def fetch(environment: Mapping[str, str], path: str) -> int:
    request = urllib.request.Request(
        environment["POINTSMAN_URL"] + path,
        headers={"Authorization": f"Bearer {environment['POINTSMAN_TOKEN']}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_api_describes_itself(served: Command) -> None:
    assert fetch(served.environment, "/api/v1/schema") == 200
    assert fetch(served.environment, "/api/v1/whoami") == 200
    assert fetch(served.environment, "/api/v1/nothing") == 404
    assert fetch(served.environment, "/login/") == 200


def log_in(address: str, number: int) -> str:
    """The page that answers a login with a wrong password, of a client that claims some address."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(f"{address}/login/", timeout=PATIENCE_S) as form:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.read().decode())
    assert token is not None
    said = {"username": "admin", "password": "wrong", "csrfmiddlewaretoken": token[1]}
    request = urllib.request.Request(
        f"{address}/login/",
        data=urllib.parse.urlencode(said).encode(),
        headers={"X-Forwarded-For": f"203.0.113.{number}"},
    )
    with opener.open(request, timeout=PATIENCE_S) as answer:
        page: str = answer.read().decode()
    return page


def test_guesses_are_stopped_whatever_address_they_claim_until_the_name_is_unlocked(served: Command) -> None:
    address = served.environment["POINTSMAN_URL"]
    pages = [log_in(address, number) for number in range(11)]
    assert ["Too many logins have failed" in page for page in pages] == [False] * 10 + [True]
    assert served.says("controlplane", "unlock", "admin") == "admin: 10 failed logins are forgotten\n"
    assert "Too many logins have failed" not in log_in(address, 0)
