"""Django's settings. Everything that differs between two sites comes from the environment (docs/operating.md lists it)."""

from __future__ import annotations

import secrets
from pathlib import Path

from coordinator import env, swarms
from coordinator.desk import look

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = env.flag("SEPAL_DEBUG")
# A key of its own for each process where none is given: nothing signed then outlives the process, and no key is public.
SECRET_KEY = env.text("SEPAL_SECRET_KEY") or secrets.token_urlsafe(50)
ALLOWED_HOSTS = env.words("SEPAL_ALLOWED_HOSTS", "127.0.0.1 localhost")
SEPAL_URL = env.text("SEPAL_URL", "http://127.0.0.1:8000").rstrip("/")
CSRF_TRUSTED_ORIGINS = [SEPAL_URL]

# The swarms that this site watches: several from SEPAL_SWARMS, or one from the three short settings. The first one is that
# of addresses that name none.
SEPAL_SWARMS = swarms.read(
    env.text("SEPAL_SWARMS"),
    {
        "name": env.text("SEPAL_SWARM", "main"),
        "initial_peers": env.words("SEPAL_INITIAL_PEERS"),
        # Off, the crawler dials nobody but the addresses that servers announce; a swarm with servers behind a NAT needs it.
        "relay": env.flag("SEPAL_RELAY"),
    },
)
SEPAL_SWARM = SEPAL_SWARMS[0]["name"]
SEPAL_CRAWL_INTERVAL_S = env.seconds("SEPAL_CRAWL_INTERVAL_S", default=30.0)
# Whether the crawl worker measures servers by small forward passes; without it reports are only compared with each other.
SEPAL_MEASURE = env.flag("SEPAL_MEASURE", default=True)
# Peer ids whose reports count alone: those of the operator's own canaries.
SEPAL_TRUSTED_REPORTERS = env.words("SEPAL_TRUSTED_REPORTERS")
SEPAL_TRUSTED_PROXIES = env.words("SEPAL_TRUSTED_PROXIES")

# Bootstrap addresses for people who want to join; those above may be for this machine only.
SEPAL_JOIN_ADDRESSES = env.words("SEPAL_JOIN_ADDRESSES")

# Days of the daily open export that are kept; 0 makes none.
SEPAL_EXPORT_DAYS = env.number("SEPAL_EXPORT_DAYS", default=400)

# E-mail for alerts; without it they are webhooks only. SEPAL_MAIL_FROM is the sender.
globals().update(env.mail())
SEPAL_MAIL_FROM = env.text("SEPAL_MAIL_FROM") if env.text("SEPAL_SMTP_URL") else ""
# Webhooks over http and into this machine's own networks. For a site whose users are all trusted: everyone may ask for one.
SEPAL_ALERTS_PRIVATE = env.flag("SEPAL_ALERTS_PRIVATE")

# The gateway that the chat page talks through (`sepal gateway`), and the key that it wants, if it wants one.
SEPAL_GATEWAY_URL = env.text("SEPAL_GATEWAY_URL").rstrip("/")
SEPAL_GATEWAY_KEY = env.text("SEPAL_GATEWAY_KEY")

# Hints and forms are small; whatever is longer is refused before it is parsed.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "coordinator.desk.apps.DeskAdminConfig",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "channels",
    "corsheaders",
    "csp",
    "monitor",
    "monitor.hiding",
    "monitor.feeds",
    "monitor.alerts",
    "monitor.exports",
    "coordinator",
    "coordinator.desk",
]

MIDDLEWARE = [
    # First: the others go by the address that it leaves.
    "coordinator.addresses.SwarmInPath",
    # Next, so that it also sees what the others answer by themselves.
    "monitor.api.middleware.api_middleware",
    "django.middleware.security.SecurityMiddleware",
    # Above the files, so that they are compressed too.
    "monitor.compression.CompressPages",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "csp.middleware.CSPMiddleware",
    "coordinator.desk.policy.looser_under_admin",
    "django.middleware.common.CommonMiddleware",
    # These four are the admin's. Public pages touch no session, so that nobody else is sent a cookie.
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # Innermost: sees the pages as they were made.
    "coordinator.outage.LastPages",
]

ROOT_URLCONF = "coordinator.urls"
ASGI_APPLICATION = "coordinator.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "coordinator.desk.banners.banners",
                "monitor.context.frame",
            ]
        },
    }
]

UNFOLD = look.UNFOLD
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# The staff's cookies are sent to the admin and nowhere else, over TLS wherever the site has it, and end with the day.
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = "/admin/"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SEPAL_URL.startswith("https://")
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Strict"
SESSION_COOKIE_AGE = 12 * 3_600
SESSION_EXPIRE_AT_BROWSER_CLOSE = True

DATABASES = {"default": env.database()}

REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:6379/0")
# A Redis that is frozen, or whose machine is gone, refuses nothing: without limits every page and crawl would wait for it.
REDIS_PATIENCE_S = 2.0
_PATIENCE = {"socket_timeout": REDIS_PATIENCE_S, "socket_connect_timeout": REDIS_PATIENCE_S}
CACHES = {"default": {"BACKEND": "monitor.brief_cache.BriefCache", "LOCATION": REDIS_URL, "OPTIONS": _PATIENCE}}
CHANNEL_LAYERS = {
    "default": {
        # Unlike the core layer, this one keeps its clients when Redis restarts. It listens with a timeout of its own, so that
        # an open page on which nothing happens is not taken for a Redis that does not answer.
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, **_PATIENCE}], "prefix": "sepal"},
    }
}

CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = REDIS_URL
# Workers wait for tasks in steps of a second (Kombu's BRPOP), well within these. Who sends a task gives up after the second
# try, where Kombu would try for ever; a worker's own connection is kept up by CELERY_BROKER_CONNECTION_RETRY.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 2 * REDIS_PATIENCE_S,
    "socket_connect_timeout": REDIS_PATIENCE_S,
    "max_retries": 1,
    "interval_start": 0.0,
    "interval_step": 0.5,
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.5, "interval_max": 0.5}
CELERY_REDIS_SOCKET_TIMEOUT = 2 * REDIS_PATIENCE_S
CELERY_REDIS_SOCKET_CONNECT_TIMEOUT = REDIS_PATIENCE_S
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {"retry_policy": {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.5}}
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_ROUTES = {f"monitor.tasks.{name}": {"queue": "crawl"} for name in ("crawl", "dial", "measure")}
CELERY_TASK_TIME_LIMIT = 300
# Of the crawl worker; the other one is told its own number. Each swarm crawls and measures at once, also where all the others'
# bootstrap peers are silent for a minute; the rest is for visitors who have a server dialled.
CELERY_WORKER_CONCURRENCY = 2 * len(SEPAL_SWARMS) + 2
CELERY_RESULT_EXPIRES = 300
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "coordinator.beat:Scheduler"
CELERY_BEAT_SCHEDULE = {
    **{
        f"crawl {swarm['name']}": {
            "task": "monitor.tasks.crawl",
            "args": [swarm["name"]],
            "schedule": SEPAL_CRAWL_INTERVAL_S,
            # A crawl that waited longer than one interval is not worth running: the next one is due.
            "options": {"expires": SEPAL_CRAWL_INTERVAL_S},
        }
        for swarm in SEPAL_SWARMS
    },
    **{
        f"measure {swarm['name']}": {
            "task": "monitor.tasks.measure",
            "args": [swarm["name"]],
            "schedule": max(15.0, SEPAL_CRAWL_INTERVAL_S),
            "options": {"expires": SEPAL_CRAWL_INTERVAL_S},
        }
        for swarm in SEPAL_SWARMS
        if SEPAL_MEASURE
    },
    "watch freshness": {
        "task": "monitor.tasks.watch_freshness",
        "schedule": SEPAL_CRAWL_INTERVAL_S,
        "options": {"expires": SEPAL_CRAWL_INTERVAL_S},
    },
    "remember": {
        "task": "monitor.tasks.remember",
        # Bars and uptime are as new as this.
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "forget": {"task": "monitor.tasks.forget", "schedule": 3_600.0, "options": {"expires": 3_600}},
    "deliver alerts": {"task": "monitor.alerts.tasks.deliver", "schedule": 15.0, "options": {"expires": 15}},
    "forget alerts": {"task": "monitor.alerts.tasks.forget", "schedule": 3_600.0, "options": {"expires": 3_600}},
    "export": {"task": "monitor.exports.tasks.export", "schedule": 3_600.0, "options": {"expires": 3_600}},
    "settle leases": {
        "task": "coordinator.tasks.settle_leases",
        "schedule": min(10.0, SEPAL_CRAWL_INTERVAL_S),
        "options": {"expires": 30},
    },
    "forget old hints": {"task": "coordinator.tasks.forget_old", "schedule": 3600.0, "options": {"expires": 3600}},
}

STATIC_URL = "static/"
# Serves straight from the packages' static folders, so that no collectstatic step can be forgotten.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
# Where a template names none: in the admin's lists. Pages name theirs.
DATETIME_FORMAT = "j M Y H:i:s"

CORS_ALLOW_ALL_ORIGINS = True
# Of what lies under /api `monitor.api.middleware` takes care.
CORS_URLS_REGEX = r"^/(metrics|badge|exports|incidents\.|fresh)"
CORS_ALLOW_METHODS = ["GET", "HEAD", "OPTIONS"]
CORS_EXPOSE_HEADERS = ["ETag", "Link", "Retry-After"]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
    }
}
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("SEPAL_LOG_LEVEL", "INFO").upper()},
    # One line a request on the crawler's side says nothing that the crawl records do not.
    "loggers": {"celery.app.trace": {"level": "WARNING"}, "httpx": {"level": "WARNING"}},
}
