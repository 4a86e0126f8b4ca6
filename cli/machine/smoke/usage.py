"""Usage: every answered request is counted once, whoever was killed meanwhile."""

from cli.local.smoke.context import CheckError, until
from cli.machine.smoke.configured import MODEL, POOL
from cli.machine.smoke.context import Smoke

COUNTED_WITHIN_S = 90.0


async def every_answered_request_is_counted_once(smoke: Smoke) -> str:
    """The ledger has as many records of answers as clients have got from the pool since it was made."""
    wanted = smoke.answered[MODEL]
    last = 0

    async def all_counted() -> bool:
        nonlocal last
        last = (await smoke.api.call("GET", f"usage/records?pool={POOL}&status=200&limit=1"))["total"]
        return bool(last >= wanted)

    try:
        waited = await until(all_counted, f"{wanted} records of {POOL}", COUNTED_WITHIN_S)
    except CheckError as error:
        raise CheckError(f"{error}; there are {last}") from None
    if last != wanted:
        raise CheckError(f"{last} records of {wanted} requests")
    return f"{wanted} requests, {last} records, {waited:.1f} s after the last one"
