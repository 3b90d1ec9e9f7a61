"""A worker's end of the line, in a process of its own: ending is what it is about."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everstep.elastic import channel
from everstep.elastic.worker import RESTART, Alone, attach

WORKER = """
import sys, time
from everstep.elastic.worker import attach
group = attach()
print("generation", group.generation, flush=True)
for line in sys.stdin:
    match line.strip():
        case "regroup?": print(group.regroup_reason, flush=True)
        case "commit?": print(group.commit(7, 1), flush=True)
        case "settle": group.settle(); print("settled", flush=True)
        case "end": break
"""


class Agent:
    """The agent's end, with one worker process."""

    def __init__(self, path: Path) -> None:
        self.heard: list[dict] = []
        self.settled = threading.Event()
        self.exchange = channel.Exchange(path, self._hear)
        self.exchange.start()
        self.worker = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={channel.SOCKET_VARIABLE: str(path), "PYTHONPATH": str(Path.cwd())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.first = self.worker.stdout.readline().strip()

    def _hear(self, pid: int, message: channel.Message) -> channel.Message | None:
        del pid
        self.heard.append(dict(message))
        if "settling" in message:
            self.settled.set()
        if "hello" in message:
            return {"welcome": 7}
        return {"answer": message["commit"] == 7} if "commit" in message else None

    def ask(self, line: str) -> str:
        self.worker.stdin.write(f"{line}\n")
        self.worker.stdin.flush()
        return self.worker.stdout.readline().strip()


@pytest.fixture
def agent(tmp_path):
    agent = Agent(tmp_path / "agent.sock")
    yield agent
    agent.worker.kill()
    agent.worker.communicate()
    agent.exchange.close()


def test_a_worker_learns_its_generation(agent):
    assert agent.first == "generation 7"


def test_a_stop_ends_the_worker_at_once_wherever_it_is(agent):
    agent.exchange.broadcast({"stop": "lost b"})

    assert agent.worker.wait(10) == RESTART
    assert "lost b" in agent.worker.stderr.read()


def test_a_worker_whose_agent_is_gone_ends(agent):
    agent.exchange.close()

    assert agent.worker.wait(10) == RESTART


def test_a_settling_worker_outlives_a_stop_to_save_its_step(agent):
    assert agent.ask("settle") == "settled"
    assert agent.settled.wait(10)
    agent.exchange.broadcast({"stop": "lost b"})

    assert agent.ask("commit?") == "True"


def test_a_commit_is_asked_for_with_the_worker_s_own_generation(agent):
    assert agent.ask("commit?") == "True"
    assert {"commit": 7, "taken_in": 7, "step": 1} in agent.heard


def test_a_wish_to_regroup_only_raises_a_flag(agent):
    agent.exchange.broadcast({"regroup": "d joins"})
    agent.ask("commit?")  # answered after the wish: the line keeps its order

    assert agent.ask("regroup?") == "d joins"


def test_without_an_agent_a_worker_is_alone(monkeypatch):
    monkeypatch.delenv(channel.SOCKET_VARIABLE, raising=False)

    assert isinstance(attach(), Alone)
    assert attach().commit(0, 1)


def test_a_worker_whose_agent_has_died_meanwhile_ends_too(tmp_path):
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from everstep.elastic.worker import attach; attach(); print('went on')",
        ],
        env={channel.SOCKET_VARIABLE: str(tmp_path / "gone"), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == RESTART
    assert "the node's agent is gone" in ended.stderr
    assert "went on" not in ended.stdout
