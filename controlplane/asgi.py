"""The control plane as an ASGI application: HTTP, and websockets.

Websockets know who is logged in where sessions are installed. Each of them judges its caller and where that
one comes from; paths that are not known are closed.
"""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
_http = get_asgi_application()  # applications are loaded by it, which what follows needs


def _websockets() -> Any:
    from channels.routing import URLRouter
    from django.apps import apps

    from controlplane.websockets import urlpatterns

    known = URLRouter([*urlpatterns, *_others()])
    if not apps.is_installed("django.contrib.sessions"):
        return known
    from channels.auth import AuthMiddlewareStack

    return AuthMiddlewareStack(known)


def _others() -> list[Any]:
    """Whatever else is asked for is closed, and is no failure."""
    from channels.generic.websocket import WebsocketConsumer
    from django.urls import re_path

    class Nothing(WebsocketConsumer):
        def connect(self) -> None:
            """Refuse."""
            self.close()

    return [re_path("", cast("Any", Nothing.as_asgi()))]


def _application() -> Any:
    from channels.routing import ProtocolTypeRouter

    return ProtocolTypeRouter({"http": _http, "websocket": _websockets()})


application = _application()
