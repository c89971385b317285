"""All settings. Nothing exists only in production; what must differ is read from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dj_database_url
import django_stubs_ext
from csp.constants import NONE, SELF

from console.settings import env

django_stubs_ext.monkeypatch()

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel carries templates and static files inside the package, a checkout beside it.
_ASSETS = _PACKAGE if (_PACKAGE / "templates").is_dir() else _PACKAGE.parent

DEBUG = env.flag("FLOTILLA_DEBUG")
DATA_DIR = Path(env.text("FLOTILLA_DATA_DIR", str(Path.cwd() / "data")))
PUBLIC_URL = env.text("FLOTILLA_PUBLIC_URL", "http://127.0.0.1:7070")
# Only for commands that need no secret (checks, migrations files, tests); ``flotilla up`` always sets a real one.
SECRET_KEY = env.text("FLOTILLA_SECRET_KEY", "insecure-only-for-commands-without-a-server")
ALLOWED_HOSTS = env.words("FLOTILLA_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1],testserver")
CSRF_TRUSTED_ORIGINS = env.words("FLOTILLA_TRUSTED_ORIGINS", PUBLIC_URL)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "servestatic.runserver_nostatic",
    "django.contrib.staticfiles",
    "pgtrigger",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "django_cotton.apps.SimpleAppConfig",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "registry.apps.RegistryConfig",
    "workers.apps.WorkersConfig",
    "console.apps.ConsoleConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    # Before everything that may answer by itself, so that refusals carry a policy too.
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "console.middleware.static_files.StaticFilesMiddleware",
    "console.middleware.request_context.RequestContextMiddleware",
    "console.middleware.metrics.MetricsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "console.identity.login_limit.LoginLimitMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "console.identity.session_rules.SessionRulesMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
WSGI_APPLICATION = "console.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_ASSETS / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
            ],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django_cotton.cotton_loader.Loader",
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "builtins": [
                "django_cotton.templatetags.cotton",
                "django.templatetags.i18n",
                "django.templatetags.static",
                "console.templatetags.flotilla",
                "console.templatetags.constants",
            ],
        },
    }
]

DATABASE_URL = env.text("DATABASE_URL", "postgres://flotilla@127.0.0.1:7432/flotilla")
DATABASES = {"default": dj_database_url.parse(DATABASE_URL)}
# After a restart of PostgreSQL every pooled connection is dead: look before using one.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# The web runs under ASGI, where persistent connections leak: it uses a pool. Workers keep one connection each.
if env.flag("FLOTILLA_DB_POOL"):
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = {"min_size": 2, "max_size": 16, "timeout": 10}
else:
    DATABASES["default"]["CONN_MAX_AGE"] = env.integer("FLOTILLA_DB_CONN_MAX_AGE", 0)
DATABASES["default"].setdefault("OPTIONS", {})["connect_timeout"] = 5

REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:7379/0")
CACHES = {
    "default": {
        "BACKEND": "console.shared_cache.SharedRedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"socket_timeout": 3, "socket_connect_timeout": 3},
    }
}

AUTH_USER_MODEL = "registry.User"
AUTHENTICATION_BACKENDS = ["console.identity.people.PeopleBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
PASSWORD_RESET_TIMEOUT = 24 * 3600
# Sessions end so long after signing in, and after so long without use.
SESSION_HOURS = env.integer("FLOTILLA_SESSION_HOURS", 14 * 24)
SESSION_IDLE_HOURS = env.integer("FLOTILLA_SESSION_IDLE_HOURS", 3 * 24)
SESSION_ENGINE = "console.identity.session_store"
SESSION_COOKIE_AGE = SESSION_HOURS * 3600
SESSION_COOKIE_NAME = "flotilla_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = PUBLIC_URL.startswith("https://")
CSRF_COOKIE_NAME = "flotilla_csrf"
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
# Who needs a second factor beside a password: off, admins (of the site) or all.
MFA_REQUIRED = env.text("FLOTILLA_MFA_REQUIRED", "off")

# django-allauth: password, second factors, passkeys, single sign-on. Its addresses are in console.web.sign_in_urls.
ACCOUNT_ADAPTER = "console.identity.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = PUBLIC_URL.partition(":")[0]
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 900
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "django.contrib.auth.tokens.PasswordResetTokenGenerator"  # noqa: S105
# Passwords are counted by console.identity.login_limit; "login_failed" is what second factors are counted by.
ACCOUNT_RATE_LIMITS = {"login": None, "login_failed": "10/5m/key"}
SOCIALACCOUNT_ADAPTER = "console.identity.sso.SsoAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_LOGIN_ON_GET = True  # the addresses take POST only
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
# Private networks in which providers of single sign-on may stand.
SSO_ALLOWED_NETWORKS = env.words("FLOTILLA_SSO_ALLOWED_NETWORKS")
MFA_ADAPTER = "console.identity.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Flotilla"
MFA_TOTP_TOLERANCE = 1
MFA_RECOVERY_CODES_SHOW_ONCE = True

# Mail, for links to a new password. Without a host none is sent.
EMAIL_HOST = env.text("FLOTILLA_SMTP_HOST", "")
EMAIL_PORT = env.integer("FLOTILLA_SMTP_PORT", 587)
EMAIL_HOST_USER = env.text("FLOTILLA_SMTP_USER", "")
EMAIL_HOST_PASSWORD = env.text("FLOTILLA_SMTP_PASSWORD", "")
EMAIL_USE_TLS = env.flag("FLOTILLA_SMTP_STARTTLS", True)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("FLOTILLA_MAIL_FROM", "flotilla@localhost")

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# The form of a large config has many fields; the size of a body is bounded elsewhere.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 50_000

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "manifest-src": [SELF],
    }
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]
# With one language there is nothing to look up, some three hundred times a page.
USE_I18N = len(LANGUAGES) > 1
USE_TZ = True
TIME_ZONE = "UTC"
LOCALE_PATHS = [_ASSETS / "locale"]

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "staticfiles"
STATICFILES_DIRS = [_ASSETS / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
SERVESTATIC_USE_FINDERS = True

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.identity.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["console.api.renderers.FastJsonRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.api.parsers.BoundedJsonParser"],
    "DEFAULT_SCHEMA_CLASS": "console.api.schema.NamedSchema",
    "EXCEPTION_HANDLER": "console.api.exceptions.handle",
    "DEFAULT_THROTTLE_CLASSES": [],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Flotilla",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "COMPONENT_SPLIT_PATCH": False,
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "console.api.v1.openapi.add_raw_routes",
    ],
    "ENUM_NAME_OVERRIDES": {
        "VersionState": "registry.models.VersionState",
        "ApprovalState": "registry.models.ApprovalState",
        "OperationState": "registry.models.OperationState",
        "ProjectRole": "registry.models.Role",
        "RouteRole": "registry.models.RouteRole",
        "DeliveryState": "registry.models.DeliveryState",
        "WebhookFormat": "registry.models.WebhookFormat",
        "ConfigFormat": ["form", "pbtxt", "json"],
        "TokenScope": ["read", "write", "admin"],
        "JobScope": ["read", "write"],
        "IssuerKind": "registry.models.IssuerKind",
        "LicenceTreatment": ["accept", "review", "refuse"],
    },
}

# Artifacts: a URL that obstore understands; uploads wait in a folder that web and workers share.
ARTIFACT_STORE_URL = env.text("FLOTILLA_ARTIFACT_STORE_URL", (DATA_DIR / "artifacts").absolute().as_uri())
STAGING_DIR = Path(env.text("FLOTILLA_STAGING_DIR", str(DATA_DIR / "staging")))
# So many bytes of its disk stay free; an upload that would take them is not begun.
STAGING_FREE_BYTES = env.integer("FLOTILLA_STAGING_FREE_BYTES", 1024**3)
# What nobody has approved runs in a sandbox, or not at all.
SANDBOX = env.flag("FLOTILLA_SANDBOX", True)
SANDBOX_MEMORY_BYTES = env.integer("FLOTILLA_SANDBOX_MEMORY_BYTES", 4 * 1024**3)
SANDBOX_SECONDS = env.integer("FLOTILLA_SANDBOX_SECONDS", 300)
# Where packages of Python models come from for it: an index, a folder of wheels, "none"; empty: pip's usual index.
PACKAGE_INDEX = env.text("FLOTILLA_PACKAGE_INDEX", "").strip()
PACKAGE_BYTES = env.integer("FLOTILLA_PACKAGE_BYTES", 20 * 1024**3)
# How the network is reached; whatever fetches packages is told nothing else.
PACKAGE_ENVIRONMENT = env.present(
    *("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
# Most bytes of all files of a version together; 0: as many as the project has room for.
MAX_VERSION_BYTES = env.integer("FLOTILLA_MAX_VERSION_BYTES", 0)
# What keyless signatures are verified with, offline: a Sigstore trusted root.
SIGSTORE_TRUSTED_ROOT = env.text("FLOTILLA_SIGSTORE_TRUSTED_ROOT", "")
MAX_UPLOAD_BYTES = env.integer("FLOTILLA_MAX_UPLOAD_BYTES", 20 * 1024**3)
# Whether clients may send the parts of large files to the object store themselves, where it signs addresses.
DIRECT_UPLOADS = env.flag("FLOTILLA_DIRECT_UPLOADS", True)
# Beginnings of addresses that files of versions may be fetched from; nothing else is.
IMPORT_SOURCES = env.words("FLOTILLA_IMPORT_SOURCES")
# What one request of an upload has to keep up with; what came before counts, and another request goes on from there.
UPLOAD_LEAST_BYTES_PER_SECOND = env.integer("FLOTILLA_UPLOAD_LEAST_BYTES_PER_SECOND", 1024)
UPLOAD_REQUEST_SECONDS = env.integer("FLOTILLA_UPLOAD_REQUEST_SECONDS", 3600)
# Every other body, however it drips in.
BODY_SECONDS = env.integer("FLOTILLA_BODY_SECONDS", 120)
UPLOAD_EXPIRY_HOURS = env.integer("FLOTILLA_UPLOAD_EXPIRY_HOURS", 24)
# So long content stays that no version holds; what is just being added is held by nothing else.
BLOB_GRACE_HOURS = env.integer("FLOTILLA_BLOB_GRACE_HOURS", 24)
# Authority that signed the certificates of nodes' admin ports; empty: those that the system trusts.
NODE_CA_FILE = env.text("FLOTILLA_NODE_CA_FILE", "")
# Private networks that webhooks may call all the same, for receivers of one's own.
WEBHOOK_ALLOWED_NETWORKS = env.words("FLOTILLA_WEBHOOK_ALLOWED_NETWORKS")
# Private networks in which issuers of CI tokens may be, for a GitLab of one's own.
ISSUER_ALLOWED_NETWORKS = env.words("FLOTILLA_ISSUER_ALLOWED_NETWORKS")
# API keys must end within so many days; 0: they may last for ever.
TOKEN_MAX_DAYS = env.integer("FLOTILLA_TOKEN_MAX_DAYS", 0)
PROMETHEUS_URL = env.text("PROMETHEUS_URL", "")
# Calls of the API that one caller may make in a minute; 0: as many as it likes.
API_RATES = {
    "read": env.integer("FLOTILLA_RATE_READS", 6000),
    "write": env.integer("FLOTILLA_RATE_WRITES", 1200),
    "costly": env.integer("FLOTILLA_RATE_COSTLY", 600),
    "upload": env.integer("FLOTILLA_RATE_UPLOADS", 1200),
}
# Event streams that a web process holds open, and of one key or of one person's sessions together.
STREAMS = env.integer("FLOTILLA_STREAMS", 800)
STREAMS_PER_CALLER = env.integer("FLOTILLA_STREAMS_PER_CALLER", 20)
TRUSTED_PROXIES = env.words("FLOTILLA_TRUSTED_PROXIES")

# Celery. The broker only carries hints; every piece of work is a row with a lease.
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_TIME_LIMIT = 900
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 1200,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "socket_timeout": 30,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
CELERY_BEAT_SCHEDULER = "workers.schedule:SingleScheduler"
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
OPERATION_LEASE_SECONDS = env.integer("FLOTILLA_OPERATION_LEASE_SECONDS", 15)

SILENCED_SYSTEM_CHECKS: list[str] = []
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname).1s %(asctime)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("FLOTILLA_LOG_LEVEL", "INFO")},
    "loggers": {"uvicorn.access": {"level": "WARNING"}, "httpx": {"level": "WARNING"}, "httpx2": {"level": "WARNING"}},
}
