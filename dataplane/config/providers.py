"""What documents of providers, their credentials, and prices may say.

Field names are those of the field's own resources where there is one: ``schema``, ``region``, ``clientID``.
Messages never repeat a secret, nor a part of it.
"""

from __future__ import annotations

import configparser
import json
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from dataplane.config.certificates import TLS_CERTIFICATE, check_certificate
from dataplane.config.mutations import BodyMutation, HeaderMutation
from dataplane.config.values import Amount, Currency, ModelName, Moment, Name, Text, check_moment
from dataplane.errors import ConfigError

ProviderType: TypeAlias = Literal["openai", "anthropic", "azure", "bedrock", "vertex", "cohere", "custom"]
SchemaName: TypeAlias = Literal[
    "OpenAI",
    "Anthropic",
    "AzureOpenAI",
    "AWSBedrock",
    "AWSAnthropic",
    "GCPVertexAI",
    "GCPAnthropic",
    "Cohere",
]
CredentialType: TypeAlias = Literal[
    "APIKey",
    "AnthropicAPIKey",
    "AzureAPIKey",
    "AWSCredentials",
    "AzureCredentials",
    "GCPCredentials",
    "TLSCertificate",
]

SCHEMAS: Final[dict[str, tuple[str, ...]]] = {
    "openai": ("OpenAI",),
    "anthropic": ("Anthropic",),
    "azure": ("AzureOpenAI", "OpenAI"),
    "bedrock": ("AWSBedrock", "AWSAnthropic"),
    "vertex": ("GCPVertexAI", "GCPAnthropic"),
    "cohere": ("Cohere",),
    "custom": ("OpenAI", "Anthropic", "AzureOpenAI", "Cohere"),
}
"""Type -> what the provider may speak; the first is meant when nothing is said."""

CREDENTIALS: Final[dict[str, tuple[str, ...]]] = {
    "openai": ("APIKey",),
    "anthropic": ("AnthropicAPIKey",),
    "azure": ("AzureAPIKey", "AzureCredentials"),
    "bedrock": ("AWSCredentials",),
    "vertex": ("GCPCredentials",),
    "cohere": ("APIKey",),
    "custom": ("APIKey", "AnthropicAPIKey", "AzureAPIKey"),
}
"""Type -> credentials that the provider understands."""

BASE_URLS: Final = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "cohere": "https://api.cohere.com",
}
"""Where providers are that have one address for everybody."""

BY_REGION: Final = frozenset({"bedrock", "vertex"})
"""Types whose address follows from the credential's region."""

CREDENTIAL_FIELDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "AWSCredentials": (("region",), ("profile",)),
    "AzureCredentials": (("clientID", "tenantID"), ()),
    "GCPCredentials": (("projectName", "region"), ()),
}
"""Type -> fields it needs, and fields it may have; other types have none."""

MAX_SECRET_CHARACTERS: Final = 16_384
DEFAULT_PROFILE: Final = "default"

Url = Annotated[str, msgspec.Meta(min_length=1, max_length=2048, pattern=r"^https?://[!-~]+$(?!\n)")]


class _Section(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """A part of a document."""


class ApiSchema(_Section, frozen=True, kw_only=True):
    """What is spoken on the wire."""

    name: SchemaName
    version: Text | None = None
    """AzureOpenAI: ``api-version``. AWSAnthropic, GCPAnthropic: ``anthropic_version``. Cohere: in paths."""
    prefix: Text | None = None
    """Path before the endpoint's own; for OpenAI and Anthropic ``v1`` when left out."""


class CredentialRef(_Section, frozen=True, kw_only=True):
    """A ProviderCredential."""

    name: Name


class ProviderSpec(_Section, frozen=True, kw_only=True):
    """``Provider.spec``."""

    type: ProviderType
    base_url: Url | None = msgspec.field(default=None, name="baseURL")
    api_schema: ApiSchema | None = msgspec.field(default=None, name="schema")
    credential_ref: CredentialRef | None = None
    header_mutation: HeaderMutation | None = None
    body_mutation: BodyMutation | None = None

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        if self.base_url is None and self.type not in BASE_URLS and self.type not in BY_REGION:
            raise ConfigError(f"is required for a provider of type {self.type}", path="baseURL")
        if self.base_url is None and self.type in BY_REGION and self.credential_ref is None:
            raise ConfigError("is required: the region is in the credential", path="credentialRef")
        allowed = SCHEMAS[self.type]
        name = allowed[0] if self.api_schema is None else self.api_schema.name
        if name not in allowed:
            raise ConfigError(
                f"of a provider of type {self.type} must be {' or '.join(allowed)}", path="schema.name"
            )
        if name == "AzureOpenAI" and (self.api_schema is None or self.api_schema.version is None):
            raise ConfigError("is required: the api-version, such as 2024-10-21", path="schema.version")


def _check_url(text: str | None) -> None:
    if text is None:
        return
    try:
        url = urlsplit(text)
        hosted = bool(url.hostname) and url.port != 0
    except ValueError:
        hosted = False
    if not hosted:
        raise ConfigError("has no host, or a port that is none", path="baseURL")
    if "@" in url.netloc:
        raise ConfigError("must not hold a user or password; use a ProviderCredential", path="baseURL")
    if "?" in text or "#" in text:
        raise ConfigError("must end with the path", path="baseURL")


class ProviderCredentialSpec(_Section, frozen=True, kw_only=True):
    """``ProviderCredential.spec``."""

    type: CredentialType
    secret: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SECRET_CHARACTERS)] | None = None
    """Never shown. An API key; for AWS a credentials file, for Azure a client secret, for GCP a JSON key,
    for the TLS of a gateway a certificate and its key, PEM."""
    region: Text | None = None
    profile: Text | None = None
    client_id: Text | None = msgspec.field(default=None, name="clientID")
    tenant_id: Text | None = msgspec.field(default=None, name="tenantID")
    project_name: Text | None = None
    expires_at: Moment | None = None
    """When the secret ends, if somebody knows."""

    def __post_init__(self) -> None:
        check_moment(self.expires_at, "expiresAt")
        needed, possible = CREDENTIAL_FIELDS.get(self.type, ((), ()))
        values = {
            "region": self.region,
            "profile": self.profile,
            "clientID": self.client_id,
            "tenantID": self.tenant_id,
            "projectName": self.project_name,
        }
        for field, value in values.items():
            if field in needed and value is None:
                raise ConfigError(f"is required for {self.type}", path=field)
            if value is not None and field not in {*needed, *possible}:
                raise ConfigError(f"means nothing for {self.type}", path=field)
        if self.secret is not None:
            _check_secret(self.type, self.secret, self.profile or DEFAULT_PROFILE)


def _check_secret(kind: str, secret: str, profile: str) -> None:
    if kind == TLS_CERTIFICATE:
        check_certificate(secret, "secret")
    elif kind == "GCPCredentials":
        if not _is_service_account(secret):
            raise ConfigError(
                "must be a service account's key file: JSON of type service_account", path="secret"
            )
    elif kind == "AWSCredentials":
        if not _has_profile(secret, profile):
            raise ConfigError(
                f"must be a credentials file with aws_access_key_id and aws_secret_access_key in [{profile}]",
                path="secret",
            )
    elif not all("!" <= character <= "~" for character in secret):
        raise ConfigError("must be printable ASCII without blanks, as it goes into a header", path="secret")


def _is_service_account(secret: str) -> bool:
    try:
        found = json.loads(secret)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(found, dict)
        and found.get("type") == "service_account"
        and all(isinstance(found.get(field), str) for field in ("client_email", "private_key"))
    )


def _has_profile(secret: str, profile: str) -> bool:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(secret)
    except configparser.Error:
        return False
    names = ("aws_access_key_id", "aws_secret_access_key")
    return all(parser.get(profile, name, fallback="") for name in names)


class TokenPrices(_Section, frozen=True, kw_only=True):
    """Prices of a million tokens each."""

    input: Amount
    output: Amount
    cached_input: Amount | None = None
    """Left out, as ``input``; tokens counted here are not counted there."""
    cache_creation_input: Amount | None = None
    """Left out, as ``input``."""
    reasoning: Amount | None = None
    """Left out, as ``output``."""


class ModelPriceSpec(_Section, frozen=True, kw_only=True):
    """``ModelPrice.spec``: what a model costs at one place, from one moment to another."""

    provider: Name | None = None
    pool: Name | None = None
    model: ModelName
    """As it is asked for there."""
    currency: Currency
    per_million_tokens: TokenPrices
    per_request: Amount | None = None
    valid_from: Moment
    valid_until: Moment | None = None
    """The first moment at which it no longer holds; left out, it holds until another is said to."""

    def __post_init__(self) -> None:
        if (self.provider is None) == (self.pool is None):
            raise ConfigError("must have either provider or pool", path="provider")
        check_moment(self.valid_from, "validFrom")
        check_moment(self.valid_until, "validUntil")
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ConfigError("must be after validFrom", path="validUntil")
