"""Scraping real sockets: what lands in the table, and what one bad server costs the others."""

import asyncio
import gzip
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from epp.datalayer import target
from epp.datalayer.http_response import MAX_HEADER_BYTES
from epp.datalayer.scraper import Scraper
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from tests.epp.datalayer.model_server import CountedErrors, Fleet, answer, page
from tests.support.waiting import until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on a loop of its own, of either kind."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hung servers are given up soon."""
    monkeypatch.setattr(target, "TIMEOUT_S", 0.4)


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""


def test_columns_hold_what_the_server_says(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page(waiting=7, running=2, kv_usage=0.25)))
            endpoint = fleet.add(server)
            assert not fleet.table.fresh[endpoint.slot]
            await until(lambda: fleet.scrapes(endpoint) >= 3)
            slot, table = endpoint.slot, fleet.table
            assert (table.waiting[slot], table.running[slot], table.kv_usage[slot]) == (7, 2, 0.25)
            assert (table.block_size[slot], table.num_blocks[slot]) == (16, 1000)
            assert table.fresh[slot]
            assert table.stale == 0
            assert server.connections == 1
            assert (
                server.requests[0]
                == (
                    f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
                    "Accept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\n"
                    "User-Agent: pointsman-epp\r\n\r\n"
                ).encode()
            )
            assert (fleet.errors.poll, fleet.errors.extract, fleet.scraper.problem(endpoint)) == (0, 0, "")

    run(scenario())


def test_a_later_page_replaces_an_earlier_one(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page(waiting=7)))
            endpoint = fleet.add(server)
            await until(lambda: fleet.table.waiting[endpoint.slot] == 7)
            server.answer = answer(page(waiting=123456))
            await until(lambda: fleet.table.waiting[endpoint.slot] == 123456)

    run(scenario())


def test_what_is_booked_while_a_scrape_is_under_way_stays_unseen(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            asked, go = asyncio.Event(), asyncio.Event()

            async def wait(writer: asyncio.StreamWriter) -> None:
                asked.set()
                await go.wait()
                await answer(page())(writer)

            server = await fleet.serve(wait)
            endpoint = fleet.add(server)
            fleet.table.book(endpoint)
            await asked.wait()
            fleet.table.book(endpoint)
            assert fleet.table.unseen[endpoint.slot] == 2
            server.answer = hang
            go.set()
            await until(lambda: fleet.scrapes(endpoint) == 1)
            assert fleet.table.unseen[endpoint.slot] == 1

    run(scenario())


@pytest.mark.usefixtures("impatient")
def test_a_hung_server_is_marked_stale_and_delays_nobody(run: Run):
    async def scenario() -> None:
        async with Fleet(staleness_s=0.1) as fleet:
            good = [fleet.add(await fleet.serve(answer(page())), f"good-{i}") for i in range(19)]
            server = await fleet.serve(answer(page()))
            hung = fleet.add(server, "hung")
            await until(lambda: fleet.table.stale == 0)
            server.answer = hang
            await until(lambda: not fleet.table.fresh[hung.slot])
            before = [fleet.scrapes(endpoint) for endpoint in good]
            await until(lambda: all(fleet.scrapes(e) > n + 3 for e, n in zip(good, before, strict=True)))
            await until(lambda: fleet.scraper.problem(hung) != "")
            assert fleet.scraper.problem(hung) == (
                "the request is not answered within 0.4 s; "
                "check that the model server is alive and its port reachable"
            )
            assert fleet.errors.poll >= 1
            server.answer = answer(page(waiting=9))
            await until(lambda: fleet.table.waiting[hung.slot] == 9)
            assert fleet.scraper.problem(hung) == ""

    run(scenario())


async def endless_header(writer: asyncio.StreamWriter) -> None:
    """Send header lines for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(MAX_HEADER_BYTES):
        writer.write(b"X-More: yes\r\n" * 100)
        await writer.drain()


async def reset(writer: asyncio.StreamWriter) -> None:
    """Drop the connection without a word."""
    writer.transport.abort()


async def reset_in_the_middle(writer: asyncio.StreamWriter) -> None:
    """Drop the connection within the body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")
    await writer.drain()
    writer.close()


async def garbage(writer: asyncio.StreamWriter) -> None:
    """Speak another protocol."""
    writer.write(b"\x00\x01\x02 this is no HTTP")


async def not_found(writer: asyncio.StreamWriter) -> None:
    """Know no such path."""
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def compressed(writer: asyncio.StreamWriter) -> None:
    """Compress whether it is wanted or not."""
    body = gzip.compress(page())
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)


async def slow_body(writer: asyncio.StreamWriter) -> None:
    """Begin a body and stop."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("misbehave", "expected"),
    [
        (hang, "the request is not answered within 0.4 s"),
        (slow_body, "the request is not answered within 0.4 s"),
        (reset, "the connection was closed before answering"),
        (reset_in_the_middle, "the connection was closed after 44 bytes of an unfinished response"),
        (garbage, "the answer is not HTTP/1.1: b'\\x00\\x01\\x02 this is no HTTP'"),
        (endless_header, "the response header is longer than 65536 bytes"),
        (not_found, "the server answers HTTP status 404"),
        (compressed, "the answer is compressed (gzip), which was not asked for"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_misbehaving_server_is_named_once_tried_again_and_read_when_it_recovers(
    run: Run, misbehave: Any, expected: str, caplog: pytest.LogCaptureFixture
):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(misbehave)
            endpoint = fleet.add(server)
            await until(lambda: fleet.errors.poll >= 3)
            assert fleet.scraper.problem(endpoint).startswith(expected)
            assert fleet.scrapes(endpoint) == 0
            assert not fleet.table.fresh[endpoint.slot]
            server.answer = answer(page())
            await until(lambda: fleet.scrapes(endpoint) >= 2)
            assert fleet.scraper.problem(endpoint) == ""

    caplog.set_level(logging.INFO)
    run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.name == target.__name__]
    assert len(lines) == 2
    assert lines[0].startswith("endpoint default/a (127.0.0.1:")
    assert expected in lines[0]
    assert any(way_out in lines[0] for way_out in ("; check", "; look at", "; have the server"))
    assert lines[1].endswith("its metrics are read again")


def test_a_dead_port_is_tried_again_until_somebody_listens(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page()))
            await server.stop()
            endpoint = fleet.add(server)
            await until(lambda: fleet.errors.poll >= 2)
            assert f"port {server.port} of 127.0.0.1 cannot be reached (" in fleet.scraper.problem(endpoint)
            await server.start()
            await until(lambda: fleet.scrapes(endpoint) >= 1)

    run(scenario())


def test_a_server_that_is_gone_is_not_trusted_from_the_first_refused_connection_on(run: Run):
    async def scenario() -> None:
        async with Fleet(staleness_s=3600.0) as fleet:
            server = await fleet.serve(answer(page()))
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 1)
            await server.stop()
            await until(lambda: not fleet.table.fresh[endpoint.slot])
            assert (fleet.table.stale, fleet.table.absent) == (1, 1)
            await server.start()
            await until(lambda: bool(fleet.table.fresh[endpoint.slot]))
            assert (fleet.table.stale, fleet.table.absent) == (0, 0)

    run(scenario())


def test_a_restarted_server_is_connected_to_again(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page(waiting=1)))
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 1)
            await server.stop()
            server.answer = answer(page(waiting=2))
            await server.start()
            await until(lambda: fleet.table.waiting[endpoint.slot] == 2)

    run(scenario())


def test_an_idle_connection_closed_by_the_server_is_no_error(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:

            async def answer_and_close(writer: asyncio.StreamWriter) -> None:
                await answer(page())(writer)
                await writer.drain()
                writer.close()

            server = await fleet.serve(answer_and_close)
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 5)
            assert server.connections >= 5
            assert fleet.errors.poll == 0

    run(scenario())


@pytest.mark.parametrize("head", [b"Connection: close\r\n", b""], ids=["says close", "keeps open"])
def test_a_server_that_says_close_gets_a_new_connection(run: Run, head: bytes):
    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page(), head))
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 3)
            assert (server.connections > 1) is bool(head)
            assert fleet.errors.poll == 0

    run(scenario())


def test_a_page_without_the_needed_series_is_an_extract_error_and_does_not_refresh(
    run: Run, caplog: pytest.LogCaptureFixture
):
    async def scenario() -> None:
        async with Fleet(staleness_s=0.05) as fleet:
            server = await fleet.serve(answer(page()))
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 1)
            server.answer = answer(b"# nothing here\nother_metric 1\n")
            await until(lambda: fleet.errors.extract >= 2)
            applied = fleet.scrapes(endpoint)
            await until(lambda: not fleet.table.fresh[endpoint.slot])
            assert fleet.scrapes(endpoint) == applied
            assert fleet.table.waiting[endpoint.slot] == 4
            assert fleet.errors.poll == 0
            assert fleet.scraper.problem(endpoint).startswith(
                "its metrics lack vllm:kv_cache_usage_perc, vllm:num_requests_running, "
                "vllm:num_requests_waiting; check that its engine type label"
            )

    run(scenario())
    assert sum("its metrics lack" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("lost", "refreshes"), [(b"vllm:kv_cache_usage_perc", True), (b"vllm:num_requests_waiting", False)]
)
def test_a_partial_page_writes_what_it_has_and_refreshes_only_with_the_queue(
    run: Run, lost: bytes, refreshes: bool
):
    async def scenario() -> None:
        async with Fleet() as fleet:
            partial = page(running=8).replace(lost, b"vllm:something_else")
            endpoint = fleet.add(await fleet.serve(answer(partial)))
            await until(lambda: fleet.errors.extract >= 2)
            assert fleet.table.running[endpoint.slot] == 8
            assert bool(fleet.table.fresh[endpoint.slot]) is refreshes
            assert fleet.scraper.problem(endpoint).startswith(f"its metrics lack {lost.decode()}; ")

    run(scenario())


def test_an_endpoint_whose_page_takes_long_to_read_is_asked_less_often(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(target, "EXPENSIVE_S", 0.0)
    monkeypatch.setattr(target, "BUSY_SHARE", 1e-9)

    async def scenario() -> None:
        async with Fleet() as fleet:
            server = await fleet.serve(answer(page()))
            endpoint = fleet.add(server)
            await until(lambda: fleet.scrapes(endpoint) >= 1)
            await asyncio.sleep(0.1)
            assert len(server.requests) == 1
            assert fleet.errors.poll == 0

    run(scenario())


def test_an_endpoint_that_leaves_while_it_answers_changes_nothing(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            asked, go = asyncio.Event(), asyncio.Event()

            async def wait(writer: asyncio.StreamWriter) -> None:
                asked.set()
                await go.wait()
                await answer(page(waiting=99))(writer)

            slow = await fleet.serve(wait)
            leaving = fleet.add(slow, "leaving")
            await asked.wait()
            fleet.table.remove("default/leaving")
            fleet.scraper.on_endpoint_removed(leaving)
            successor = fleet.table.add(EndpointSpec("next", "default", "127.0.0.1", 1))
            assert successor.slot == leaving.slot
            go.set()
            await asyncio.sleep(0.05)
            assert fleet.table.waiting[successor.slot] == 0
            assert not fleet.table.fresh[successor.slot]
            assert len(slow.requests) == 1

    run(scenario())


def test_new_labels_are_read_with_the_mapping_of_the_new_engine(run: Run):
    async def scenario() -> None:
        async with Fleet() as fleet:
            body = (
                page(waiting=1)
                + b"sglang:num_queue_reqs 2\nsglang:num_running_reqs 3\nsglang:token_usage 0.5\n"
            )
            server = await fleet.serve(answer(body))
            endpoint = fleet.add(server)
            await until(lambda: fleet.table.waiting[endpoint.slot] == 1)
            labels = {"llm-d.ai/engine-type": "sglang"}
            fleet.table.relabel("default/a", EndpointSpec("a", "default", "127.0.0.1", server.port, labels))
            await until(lambda: fleet.table.waiting[endpoint.slot] == 2)

    run(scenario())


def test_port_and_path_of_the_source_are_used(run: Run):
    async def scenario() -> None:
        async with Fleet() as first:
            server = await first.serve(answer(page()))
            async with Fleet(port=server.port, path="/other?x=1") as fleet:
                endpoint = fleet.add(server, port=1)
                await until(lambda: fleet.scrapes(endpoint) >= 1)
                assert server.requests[0].startswith(
                    b"GET /other?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port
                )

    run(scenario())


async def test_without_sources_nothing_is_scraped():
    table = EndpointTable()
    scraper = Scraper(table, [], CountedErrors(), base_interval_s=0.01, staleness_s=2.0)
    endpoint = table.add(EndpointSpec("a", "default", "127.0.0.1", 1))
    before = asyncio.all_tasks()
    scraper.on_endpoint_added(endpoint)
    scraper.start()
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before
    assert table.epoch[endpoint.slot] == 0
    scraper.on_endpoint_removed(endpoint)
    scraper.stop()


async def test_without_a_source_of_load_nobody_stays_fresh_or_gone():
    table = EndpointTable()
    fresh = table.add(EndpointSpec("a", "default", "127.0.0.1", 1))
    gone = table.add(EndpointSpec("b", "default", "127.0.0.1", 2))
    table.begin_scrape(fresh.slot)
    table.end_scrape(fresh.slot, 0.0)
    table.distrust(gone.slot, gone=True)
    assert (table.stale, table.absent) == (1, 1)
    scraper = Scraper(table, [], CountedErrors(), base_interval_s=0.01, staleness_s=2.0)
    scraper.start()
    scraper.stop()
    assert (table.stale, table.absent) == (2, 0)


async def test_endpoints_already_in_the_table_are_scraped_from_the_start():
    async with Fleet() as fleet:
        server = await fleet.serve(answer(page()))
        endpoint = fleet.table.add(EndpointSpec("a", "default", "127.0.0.1", server.port))
        fleet.scraper.stop()
        fleet.scraper.start()
        await until(lambda: fleet.scrapes(endpoint) >= 1)


async def test_stopping_closes_connections_and_leaves_no_task():
    before = asyncio.all_tasks()
    async with Fleet() as fleet:
        good = await fleet.serve(answer(page()))
        hung = await fleet.serve(hang)
        endpoint = fleet.add(good, "good")
        fleet.add(hung, "hung")
        await until(lambda: fleet.scrapes(endpoint) >= 1 and bool(hung.requests))
        fleet.scraper.stop()
        await until(lambda: asyncio.all_tasks() == before)


def test_rows_of_a_slowly_scraped_source_are_not_called_stale_between_two_scrapes(
    caplog: pytest.LogCaptureFixture,
):
    fleet = Fleet(interval_s=0.05, staleness_s=2.0, interval="5s")
    assert fleet.scraper.staleness_s == 15.0
    assert "scraped every 5 s, so endpoints count as stale after 15 s, not after the 2 s" in caplog.text
