"""Makes the control plane's database ready, as a process of its own: `python -m cli.machine.setup`.

It reads the token that commands of this machine have had from stdin, and writes one JSON object: a token
that holds, others for the Envoy and the payload processor of this run, and on a fresh database the
administrator's password. They go to the process that asks and nowhere else. A fresh database is noted in the
file named on the command line before there is an administrator, so that what it begins with is applied
however the first start ends.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.machine.gateway import GATEWAY, PROCESSOR

if TYPE_CHECKING:
    from controlplane.core.models import User
    from controlplane.core.roles import Binding

ADMINISTRATOR: Final = "admin"
WORKERS: Final = "this-machine-workers"
"""Envoy and the payload processor of this machine."""
TOKEN: Final = "this-machine"  # noqa: S105 - the token's name
PROCESSOR_TOKEN: Final = "this-machine-processor"  # noqa: S105 - the token's name


def main(seeds: Path) -> int:
    """Migrate; make an administrator if there is none; see to the token."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
    import django

    django.setup()
    from django.core.management import call_command

    from controlplane.core import passwords, users
    from controlplane.core.roles import Binding, BoundTo, Role

    call_command("migrate", interactive=False, verbosity=0)
    password = None
    if administrator() is None:
        seeds.touch()
        users.put(users.SYSTEM, ADMINISTRATOR, Role.ADMIN)
        users.change(users.SYSTEM, ADMINISTRATOR, active=True)
        password = passwords.draw(users.SYSTEM, ADMINISTRATOR)
    name, token = token_that_holds(sys.stdin.read().strip())
    workers = users.put(users.SYSTEM, WORKERS, Role.WORKER)
    found = {
        "administrator": name,
        "password": password,
        "token": token,
        "worker_token": another_token(workers, Binding(BoundTo.GATEWAY, GATEWAY)),
        "processor_token": another_token(workers, Binding(BoundTo.PROCESSOR, PROCESSOR), PROCESSOR_TOKEN),
    }
    json.dump(found, sys.stdout)
    return 0


def administrator() -> str | None:
    """Whose token commands of this machine use: the first who may do everything."""
    from controlplane.core.models import User
    from controlplane.core.roles import Role

    found = User.objects.filter(role=Role.ADMIN, is_active=True).order_by("pk").first()
    return None if found is None else str(found.username)


def token_that_holds(given: str) -> tuple[str, str]:
    """Whose, and the token: the given one if it still does everything, else another."""
    from controlplane.core import tokens, users
    from controlplane.core.roles import Channel, Role

    found = tokens.recognise(given, Channel.CLI)
    if found is not None and found[1].role == Role.ADMIN:
        return found[1].name, given
    user = users.find(administrator() or ADMINISTRATOR)
    return user.username, another_token(user)


def another_token(user: "User", binding: "Binding | None" = None, name: str = TOKEN) -> str:
    """A new token of this machine in place of the one before."""
    from controlplane.core import tokens, users
    from controlplane.core.errors import MissingError

    with contextlib.suppress(MissingError):
        tokens.revoke(users.SYSTEM, user, name)
    return tokens.issue(users.SYSTEM, user, name, binding=binding).text


def run() -> int:
    """`main`; a database that cannot be had is one line on stderr."""
    from django.db import DatabaseError

    try:
        return main(Path(sys.argv[1]))
    except DatabaseError as error:
        sys.stderr.write(f"the database refuses: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(run())
