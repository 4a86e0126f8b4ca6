"""Child processes: ready or an error that says why."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.children import BenchError, Child, Worker
from tests.support.waiting import wait_until

ECHO = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print("got", line.strip(), flush=True)
"""


@pytest.fixture
def echo(tmp_path, monkeypatch) -> Worker:
    (tmp_path / "echo_worker.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Worker("echo", "echo_worker", [], tmp_path)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_worker_answers_and_ends_when_left(echo: Worker):
    with echo:
        assert echo.read_line() == b"ready"
        assert echo.ask("mark") == b"got mark"
        assert echo.cpu_seconds() > 0
    assert echo.process.returncode is not None


def test_paused_worker_answers_after_it_is_resumed(echo: Worker):
    with echo:
        echo.read_line()
        echo.pause()
        with pytest.raises(BenchError, match=r"echo did not answer within 0\.05 s"):
            echo.ask("one", timeout_s=0.05)
        echo.resume()
        assert echo.read_line() == b"got one"


def test_paused_child_is_stopped_all_the_same(tmp_path):
    with Child("sleeper", python("import time; time.sleep(60)"), tmp_path) as child:
        child.pause()
    assert child.process.returncode is not None


def test_child_that_ends_early_is_answered_with_its_last_words(tmp_path):
    child = Child("failing", python("import sys; sys.exit('no such flag')"), tmp_path)
    with child, pytest.raises(BenchError) as caught:
        child.wait_until(lambda: False)
    assert str(caught.value) == "failing ended with code 1; its last words:\nno such flag"


def test_worker_that_ends_early_is_said_to_have_ended(echo: Worker):
    with echo:
        echo.read_line()
        echo.process.kill()
        echo.process.wait()
        with pytest.raises(BenchError, match="echo ended with code -9"):
            echo.ask("mark")


def test_child_that_is_never_ready_is_given_up(tmp_path):
    with (
        Child("slow", python("import time; time.sleep(60)"), tmp_path) as child,
        pytest.raises(BenchError, match=r"slow is not ready after 0\.1 s"),
    ):
        child.wait_until(lambda: False, timeout_s=0.1)


def test_child_that_does_not_become_ready_is_not_left_behind(tmp_path):
    class Hopeless(Child):
        def become_ready(self) -> None:
            raise BenchError("hopeless")

    child = Hopeless("hopeless", python("import time; time.sleep(60)"), tmp_path)
    with pytest.raises(BenchError, match="hopeless"), child:
        pass
    assert child.process.returncode is not None


def test_cpu_time_of_a_child_that_ended_is_an_error(tmp_path):
    with Child("brief", python(""), tmp_path) as child:
        while child.process.poll() is None:
            time.sleep(0.01)
        with pytest.raises(BenchError, match="brief ended with code 0"):
            child.cpu_seconds()


def test_children_end_when_the_benchmark_is_killed(tmp_path):
    started = tmp_path / "started"
    code = f"""
import sys, time
from pathlib import Path
from benchmarks.children import Child
orphan = "import time, pathlib; pathlib.Path({str(started)!r}).touch(); time.sleep(60)"
child = Child("orphan", [sys.executable, "-c", orphan], Path({str(tmp_path)!r}))
child.wait_until(Path({str(started)!r}).exists)
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as benchmark:
        stat = Path(f"/proc/{int(benchmark.stdout.readline())}/stat")
        assert is_running(stat)
        benchmark.kill()
    wait_until(lambda: not is_running(stat), lambda: "the child outlived the benchmark")


def is_running(stat: Path) -> bool:
    """Whether the process of a /proc/PID/stat exists and has not ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_program_that_does_not_exist_is_named(tmp_path):
    child = Child("absent", [str(tmp_path / "no-such-program")], tmp_path)
    with child, pytest.raises(BenchError, match="absent ended with code 127"):
        child.wait_until(lambda: False)
