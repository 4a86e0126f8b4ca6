"""Django's settings, safe by default: what loosens them has to be said in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controlplane import database, environment

_ROOT = Path(__file__).resolve().parent.parent
_STATE = environment.state_folder()

SECRET_KEY = environment.secret_key(_STATE)
ENCRYPTION_KEYS = environment.encryption_keys()
ENCRYPTION_KEYS_FILE = _STATE / "encryption-keys"
DEBUG = environment.is_debug()
ALLOWED_HOSTS = environment.allowed_hosts()

INSTALLED_APPS = [
    "controlplane.core",
    "controlplane.fleet",
    "controlplane.objectives",
    "controlplane.tenancy",
    "controlplane.configs",
    "controlplane.providers",
    "controlplane.policies",
    "controlplane.telemetry",
    "controlplane.usage",
    "controlplane.gateways",
    "controlplane.xds",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "django.contrib.admin.apps.SimpleAdminConfig",  # of a site of our own; nothing adds itself to it
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "controlplane.core.requests.name_requests",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",  # pages; the API's callers show a token in each request
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "controlplane.core.console.failures.WithoutDatabase",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [_ROOT / "controlplane" / "static"]
WHITENOISE_USE_FINDERS = True  # straight from where they are: there is no step that collects them
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "controlplane.core.console.failures.not_a_form_of_ours"
LOGIN_REDIRECT_URL = "console:overview"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_NAME = "pointsman-session"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

DATABASES = {"default": database.of_url(environment.database_url(_STATE), environment.DATABASE_URL)}

USAGE_RETENTION_DAYS = environment.usage_days()
VALKEY_URL = environment.valkey_url()
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [VALKEY_URL]}}
    if VALKEY_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}
CELERY_BROKER_URL = VALKEY_URL.replace("unix://", "redis+socket://", 1) or "memory://"
CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": "required"} if VALKEY_URL.startswith("rediss://") else False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "pointsman:tasks:"}
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TIMEZONE = "UTC"

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "core.User"
_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": f"{_VALIDATION}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATION}.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": f"{_VALIDATION}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATION}.NumericPasswordValidator"},
]
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

# The API's callers show a token in each request; people at the console have a cookie, and forms a token.
SECURE_SSL_REDIRECT = environment.is_public(ALLOWED_HOSTS)
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_SSL_REDIRECT else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE_SSL_REDIRECT
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if environment.is_behind_proxy() else None
TRUSTED_PROXIES = environment.trusted_proxies()
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE = SECURE_SSL_REDIRECT
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"

# What fails is told with its traceback; what is refused has been told to whoever asked.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "controlplane.core.requests.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"django": {"handlers": [], "level": "WARNING"}, "django.request": {"level": "ERROR"}},
}

DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024
"""Largest request body in bytes: a set of documents."""

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["controlplane.core.api.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["controlplane.core.api.renderers.AnyTextRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.core.api.parsers.DocumentParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "controlplane.core.api.errors.answer",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Pointsman control plane",
    "VERSION": "v1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "POSTPROCESSING_HOOKS": ["controlplane.core.api.openapi.add_components"],
}
