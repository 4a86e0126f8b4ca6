"""The scheduler runs what the profile handler asks for, and says whose failure is the request's."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import pytest

from dataplane.errors import InternalError, RequestError, ResourceExhaustedError, ServiceUnavailableError
from epp.interfaces.endpoint import Candidates, EndpointTable, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult
from epp.plugins.profile_handlers.single import SingleProfileHandler
from epp.scheduling.profile import Profile
from epp.scheduling.scheduler import Scheduler
from tests.support.pool import make_plugin, make_request, make_table


class PickAt:
    """A picker of one position."""

    def __init__(self, position: int) -> None:
        self.position = position

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]:
        return (self.position,)


class Refuse:
    """A filter that ends its profile with an error."""

    def __init__(self, error: RequestError) -> None:
        self.error = error

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        raise self.error


class InSteps:
    """A profile handler that runs profiles one after the other and names the first as primary."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        return [available[name] for name in self.names[len(results) :]][:1]

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        found = {name: result for name, result in results.items() if result is not None}
        return SchedulingResult(found, next(iter(found)))


class Stubborn(InSteps):
    """A profile handler that asks for the same profile again and again."""

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        return list(available.values())[:1]


class Timings:
    def __init__(self) -> None:
        self.points: list[str] = []

    def recorder(self, point: str, plugin: object) -> Callable[[float], None]:
        return lambda seconds: self.points.append(point)


def scheduler(handler: object, *profiles: Profile, timings: Timings | None = None) -> Scheduler:
    """A scheduler of these profiles."""
    graph = SimpleNamespace(profiles={p.name: p for p in profiles}, profile_handler=handler)
    return Scheduler(graph, timings=timings)


def refusing(name: str, error: RequestError) -> Profile:
    return Profile(name, [("refuse", Refuse(error))], [], PickAt(0))


def test_one_profile_decides():
    table = make_table(3)
    result = scheduler(make_plugin(SingleProfileHandler), Profile("p", [], [], PickAt(1))).schedule(
        make_request(), table.all()
    )
    assert result.primary == "p"
    assert result.endpoints == [table.get("default/e1")]


def test_profiles_run_as_the_handler_asks():
    result = scheduler(
        InSteps("b", "a"), Profile("a", [], [], PickAt(0)), Profile("b", [], [], PickAt(1))
    ).schedule(make_request(), make_table(2).all())
    assert list(result.results) == ["b", "a"]
    assert result.primary == "b"


def test_no_candidates_are_503():
    with pytest.raises(ServiceUnavailableError):
        scheduler(InSteps("p"), Profile("p", [], [], PickAt(0))).schedule(
            make_request(), EndpointTable().all()
        )


def test_the_failure_of_the_only_profile_is_the_requests():
    error = ResourceExhaustedError("all full")
    with pytest.raises(ResourceExhaustedError) as caught:
        scheduler(make_plugin(SingleProfileHandler), refusing("p", error)).schedule(
            make_request(), make_table(1).all()
        )
    assert caught.value is error


def test_when_all_profiles_fail_the_first_failure_counts():
    first, second = ResourceExhaustedError("first"), ServiceUnavailableError("second")
    with pytest.raises(ResourceExhaustedError) as caught:
        scheduler(InSteps("a", "b"), refusing("a", first), refusing("b", second)).schedule(
            make_request(), make_table(1).all()
        )
    assert caught.value is first


def test_the_handler_judges_when_some_profile_succeeded():
    result = scheduler(
        InSteps("a", "b"), refusing("a", ResourceExhaustedError("full")), Profile("b", [], [], PickAt(0))
    ).schedule(make_request(), make_table(1).all())
    assert list(result.results) == ["b"]


class Judge(InSteps):
    """A profile handler that finds only failures of one profile serious."""

    def judge(self, failures: Mapping[str, RequestError]) -> RequestError | None:
        error = failures.get("a")
        return None if error is None else ServiceUnavailableError(f"{len(failures)} failed: {error.message}")


def test_a_handler_may_say_what_failures_mean():
    full = ResourceExhaustedError("full")
    with pytest.raises(ServiceUnavailableError) as caught:
        scheduler(Judge("a", "b"), refusing("a", full), Profile("b", [], [], PickAt(0))).schedule(
            make_request(), make_table(1).all()
        )
    assert caught.value.message == "1 failed: full"
    result = scheduler(Judge("b", "a"), refusing("b", full), Profile("a", [], [], PickAt(0))).schedule(
        make_request(), make_table(1).all()
    )
    assert list(result.results) == ["a"]


def test_a_handler_that_repeats_itself_is_a_defect_and_no_endless_loop():
    with pytest.raises(InternalError, match="asked for profile 'p' twice"):
        scheduler(Stubborn(), *(Profile(name, [], [], PickAt(0)) for name in "pq")).schedule(
            make_request(), make_table(1).all()
        )


def test_the_handlers_own_time_is_reported():
    timings = Timings()
    scheduler(InSteps("p"), Profile("p", [], [], PickAt(0)), timings=timings).schedule(
        make_request(), make_table(1).all()
    )
    assert timings.points == ["ProfilePicker", "Picker", "ProcessProfilesResults"]
