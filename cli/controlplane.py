"""`pointsman controlplane`: set the control plane up, run it, and let people in.

All but `run-gateway` work on the database itself, so whoever may run them here is trusted. Everything else
goes through the API (`pointsman apply`, `diff`, `export`, `get`, `rollout`).
"""

import argparse
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

from cli.arguments import Parser, Run, Subparsers
from cli.run_gateway import add_arguments as add_run_gateway
from dataplane.errors import ConfigError

DEFAULT_PORT = 8800
DEFAULT_XDS_PORT = 18000
FAILED = 1
FIRST_TOKEN = "first"  # noqa: S105 - the token's name


def add_parser(subparsers: Subparsers) -> None:
    """Add the `controlplane` subcommand."""
    parser = subparsers.add_parser(
        "controlplane", help="set up and run the control plane", description=__doc__
    )
    commands = parser.add_subparsers(parser_class=Parser, required=True, metavar="COMMAND")
    init = commands.add_parser("init", help="make or renew the database, and an administrator at first")
    init.add_argument("--admin", default="admin", metavar="NAME", help="the administrator (default: admin)")
    init.set_defaults(run=partial(with_django, run_init))
    serve = commands.add_parser("serve", help="answer the API")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0 = any")
    serve.set_defaults(run=partial(with_django, run_serve))
    _add_fleet(commands)
    xds = commands.add_parser("serve-xds", help="send workers their configuration")
    xds.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    xds.add_argument(
        "--port", type=int, default=DEFAULT_XDS_PORT, help=f"default: {DEFAULT_XDS_PORT}; 0 = any"
    )
    xds.add_argument(
        "--tls-cert", default="", metavar="FILE", help="certificate chain, PEM; without it no TLS"
    )
    xds.add_argument("--tls-key", default="", metavar="FILE", help="its key, PEM")
    xds.add_argument(
        "--client-ca", default="", metavar="FILE", help="authorities of workers' certificates, PEM"
    )
    xds.add_argument(
        "--metrics-host", default="127.0.0.1", metavar="HOST", help="where metrics are served (127.0.0.1)"
    )
    xds.add_argument(
        "--metrics-port",
        type=int,
        metavar="N",
        help="serve /metrics, /healthz and /readyz there; 0 = any (default: nowhere)",
    )
    xds.set_defaults(run=partial(with_django, run_serve_xds))
    tasks = commands.add_parser("run-tasks", help="do what is done by the clock; needs VALKEY_URL")
    tasks.set_defaults(run=partial(with_django, run_tasks))
    gateway = commands.add_parser("run-gateway", help="run an Envoy that serve-xds tells everything")
    add_run_gateway(gateway)
    _add_access(commands)
    rotate = commands.add_parser("rotate-encryption-key", help="encrypt all stored secrets with a new key")
    rotate.set_defaults(run=partial(with_django, run_rotate_encryption_key))


def _add_fleet(commands: Subparsers) -> None:
    """Where its files are, and where pickers find the control plane."""
    fleet = commands.add_parser(
        "run-fleet", help="run a picker, and simulated servers, for each pool whose driver is local"
    )
    fleet.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="files and logs (default: fleet in $POINTSMAN_STATE)"
    )
    fleet.add_argument(
        "--xds-server",
        default=f"127.0.0.1:{DEFAULT_XDS_PORT}",
        metavar="HOST:PORT",
        help="serve-xds, which tells pickers what they are to do (default: %(default)s)",
    )
    fleet.add_argument(
        "--xds-ca",
        default="",
        metavar="FILE",
        help="authorities of its certificate, PEM",
    )
    fleet.add_argument("--xds-cert", default="", metavar="FILE", help="certificate of the pickers, PEM")
    fleet.add_argument("--xds-key", default="", metavar="FILE", help="its key, PEM")
    fleet.set_defaults(run=partial(with_django, run_fleet))


def _add_access(commands: Subparsers) -> None:
    """Who may come in, and with what."""
    user = commands.add_parser("user", help="let somebody in, or change the role")
    user.add_argument("name")
    user.add_argument(
        "--role", help="default: viewer for somebody new", choices=["worker", "viewer", "operator", "admin"]
    )
    access = user.add_mutually_exclusive_group()
    access.add_argument("--disable", action="store_true", help="end all access at once")
    access.add_argument("--enable", action="store_true", help="let him in again")
    user.set_defaults(run=partial(with_django, run_user))
    token = commands.add_parser("token", help="a new API token for a user, shown once")
    token.add_argument("user")
    token.add_argument("name", help="what the token is for")
    token.add_argument("--days", type=int, metavar="N", help="how long it holds (default: until revoked)")
    bound = token.add_mutually_exclusive_group()
    bound.add_argument("--pool", metavar="NAME", help="a worker's token: for pickers of this pool alone")
    bound.add_argument("--gateway", metavar="NAME", help="a worker's token: for Envoys of this gateway alone")
    bound.add_argument(
        "--processor", metavar="NAME", help="a worker's token: for payload processors of this name alone"
    )
    token.add_argument("--node", default="", metavar="ID", help="only for this one of them")
    token.add_argument("--revoke", action="store_true", help="take the token of this name back")
    token.set_defaults(run=partial(with_django, run_token))
    password = commands.add_parser("password", help="a new password for a user, shown once")
    password.add_argument("user")
    password.add_argument("--stdin", action="store_true", help="take it from a line of stdin, and show none")
    password.set_defaults(run=partial(with_django, run_password))
    unlock = commands.add_parser("unlock", help="let a user log in at once who has to wait after failures")
    unlock.add_argument("user")
    unlock.set_defaults(run=partial(with_django, run_unlock))


def with_django(run: Run, arguments: argparse.Namespace) -> int:
    """Run a command with the control plane's settings loaded; what it refuses is one line on stderr."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        import django

        django.setup()
        from django.db import DatabaseError

        from controlplane.core.errors import ServiceError
        from controlplane.database import require_current
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane: error: {error}\n")
        return FAILED
    try:
        if run is not run_init:
            require_current()
        return run(arguments)
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane: error: {error}\n")
    except ServiceError as error:
        mistakes = [f"{detail.path}: {detail.message}" for detail in error.details]
        for line in mistakes or [error.message]:
            sys.stderr.write(f"pointsman controlplane: error: {line}\n")
    except DatabaseError as error:
        sys.stderr.write(f"pointsman controlplane: error: the database refuses: {error}\n")
    return FAILED


def run_init(arguments: argparse.Namespace) -> int:
    """Migrate; while there is nobody who could let others in, make an administrator and print a token."""
    from django.core.management import call_command

    from controlplane.core import tokens, users
    from controlplane.core.models import User
    from controlplane.core.roles import Role

    call_command("migrate", interactive=False, verbosity=0)
    if User.objects.filter(role=Role.ADMIN, is_active=True).exists():
        print("the database is up to date")
        return 0
    admin = users.put(users.SYSTEM, arguments.admin, Role.ADMIN)
    issued = tokens.issue(users.SYSTEM, admin, FIRST_TOKEN)
    print(f"administrator {admin.username}; this token is shown once:\n{issued.text}")
    return 0


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    import uvicorn

    if not 0 <= arguments.port <= 65535:
        sys.stderr.write(f"pointsman controlplane serve: error: --port: {arguments.port} is no port\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _already_handled)
    uvicorn.run(
        "controlplane.asgi:application",
        host=arguments.host,
        port=arguments.port,
        log_level="info",
        server_header=False,
        lifespan="off",
        proxy_headers=False,  # what proxies say is believed as the settings say, not when they are near
    )
    return 0


def run_serve_xds(arguments: argparse.Namespace) -> int:
    """Serve workers until a signal ends it."""
    import logging

    from controlplane.xds.run import run
    from controlplane.xds.server import XdsOptions
    from dataplane.observability import logs

    wrong = ""
    if not 0 <= arguments.port <= 65535:
        wrong = f"--port: {arguments.port} is no port"
    elif not 0 <= (arguments.metrics_port or 0) <= 65535:
        wrong = f"--metrics-port: {arguments.metrics_port} is no port"
    elif bool(arguments.tls_cert) != bool(arguments.tls_key):
        wrong = "--tls-cert and --tls-key need one another"
    elif arguments.client_ca and not arguments.tls_cert:
        wrong = "--client-ca needs --tls-cert: certificates are shown over TLS only"
    if wrong:
        sys.stderr.write(f"pointsman controlplane serve-xds: error: {wrong}\n")
        return 2
    logs.configure(logging.INFO, json=False)
    try:
        run(
            XdsOptions(
                host=arguments.host,
                port=arguments.port,
                cert_file=arguments.tls_cert,
                key_file=arguments.tls_key,
                client_ca_file=arguments.client_ca,
                metrics_host=arguments.metrics_host,
                metrics_port=arguments.metrics_port,
            )
        )
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane serve-xds: error: {error}\n")
        return 2
    return 0


def _already_handled(number: int, frame: object) -> None:
    """uvicorn ends in order on a signal and then raises it again; it has done its work by then."""


def run_fleet(arguments: argparse.Namespace) -> int:
    """Run local pools until a signal ends it."""
    from controlplane import environment
    from controlplane.fleet.local.access import ControlPlane
    from controlplane.fleet.local.service import run_until_signal
    from dataplane.processes.child import StartError

    folder: Path = arguments.state_dir or environment.state_folder() / "fleet"
    control_plane = ControlPlane(
        server=arguments.xds_server,
        ca_file=arguments.xds_ca,
        cert_file=arguments.xds_cert,
        key_file=arguments.xds_key,
    )
    try:
        run_until_signal(folder.absolute(), control_plane)
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane run-fleet: error: {error}\n")
        return 2
    except StartError as error:
        sys.stderr.write(f"pointsman controlplane run-fleet: error: {error}\n")
        return FAILED
    return 0


def run_tasks(arguments: argparse.Namespace) -> int:
    """Run tasks until a signal ends it."""
    from controlplane import valkey

    try:
        valkey.url()
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane run-tasks: error: {error}\n")
        return 2
    from controlplane.tasks import run

    return run()


def run_user(arguments: argparse.Namespace) -> int:
    """Make a user, or change the role or the access of an existing one."""
    from controlplane.core import users
    from controlplane.core.roles import Role

    active = True if arguments.enable else False if arguments.disable else None
    if arguments.role is not None or not users.rows(users.SYSTEM).filter(username=arguments.name).exists():
        user = users.put(users.SYSTEM, arguments.name, Role(arguments.role or Role.VIEWER))
    if active is not None or arguments.role is None:
        user = users.change(users.SYSTEM, arguments.name, active=active)
    print(f"{user.username} is {user.role}{'' if user.is_active else ', without access'}")
    return 0


def run_token(arguments: argparse.Namespace) -> int:
    """Issue or revoke a token."""
    from django.utils import timezone

    from controlplane.core import tokens, users
    from controlplane.core.roles import Binding, BoundTo

    user = users.find(arguments.user)
    if arguments.revoke:
        tokens.revoke(users.SYSTEM, user, arguments.name)
        print(f"token {arguments.name} of {user.username} is revoked")
        return 0
    days = arguments.days
    if days is not None and not 0 < days <= 3650:
        sys.stderr.write(f"pointsman controlplane token: error: --days: {days} is not 1 to 3650\n")
        return 2
    binding = None
    if arguments.pool is not None:
        binding = Binding(BoundTo.POOL, arguments.pool, arguments.node)
    elif arguments.gateway is not None:
        binding = Binding(BoundTo.GATEWAY, arguments.gateway, arguments.node)
    elif arguments.processor is not None:
        binding = Binding(BoundTo.PROCESSOR, arguments.processor, arguments.node)
    elif arguments.node:
        sys.stderr.write(
            "pointsman controlplane token: error: --node needs --pool, --gateway or --processor\n"
        )
        return 2
    until = None if days is None else timezone.now() + timedelta(days=days)
    print(tokens.issue(users.SYSTEM, user, arguments.name, until, binding).text)
    return 0


def run_password(arguments: argparse.Namespace) -> int:
    """Give a user another password."""
    from controlplane.core import passwords, users

    if arguments.stdin:
        passwords.put(users.SYSTEM, arguments.user, sys.stdin.readline().rstrip("\n"))
    else:
        print(passwords.draw(users.SYSTEM, arguments.user))
    return 0


def run_unlock(arguments: argparse.Namespace) -> int:
    """Forget failed logins of a user."""
    from controlplane.core import throttle, users

    count = throttle.release(users.find(arguments.user).username)
    print(f"{arguments.user}: {count} failed logins are forgotten")
    return 0


def run_rotate_encryption_key(arguments: argparse.Namespace) -> int:
    """Draw a new key unless the environment has it, and encrypt every secret with it."""
    from controlplane.core import users
    from controlplane.providers.credentials import rotate_key

    print(f"secrets encrypted with the present key: {rotate_key(users.SYSTEM)}")
    return 0
