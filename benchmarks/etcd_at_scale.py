"""Measure what a large run costs etcd, with the requests of its agents but without the agents.

    python -m benchmarks.etcd_at_scale --members 1000

`benchmarks.scale` runs the real agents, and two cores cannot run 1,000 of them. Here one process sends their requests
to a real etcd of one server, with separate connections for each member of the run:

    idle     each member renews its lease as `OwnKey` does, watches the keys that a member of a large run watches, and
             reads them again as `RunKeys` does
    regroup  a member's lease is revoked; a coordinator writes the instruction to stop; the other members write their
             keys; the coordinator has observed all keys and writes the next generation; every member has received it

The members only count and compare keys, so a regroup takes the time of etcd and the connections. The
decisions of real agents take longer: `benchmarks.scale` has the CPU time of one agent and of a coordinator.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import re
import resource
import statistics
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.scale import REQUESTS_PATTERN, cpu_seconds
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.key_values import generation_value, member_value
from everstep.elastic.membership.own_key import RENEWALS, lease_seconds
from everstep.elastic.membership.run_keys import watch_idle_seconds
from tests.trainer.elastic.nodes import etcd_process

PREFIX = "/everstep/load/"
MEMBERS_FOLDER = f"{PREFIX}members/"
GENERATION_KEY, STOP_KEY = f"{PREFIX}generation", f"{PREFIX}instructions/stop"
ENDPOINT = "10.0.0.1:12345"
COORDINATORS = GroupLimits().coordinators
START_SECONDS = 25.0  # the members start during this time
REGROUP_SECONDS = 60.0
MAX_MESSAGE_BYTES = 2**24
LENGTH_PATTERN = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Client:
    """A connection to etcd's gRPC gateway (JSON over HTTP), as `etcd_client` uses it."""

    def __init__(self, endpoint: str) -> None:
        self._host, _, self._port = endpoint.rpartition(":")

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(
            self._host, int(self._port), limit=MAX_MESSAGE_BYTES
        )

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its response."""
        head = await self.send(path, body)
        if length := LENGTH_PATTERN.search(head):
            return dict(json.loads(await self._reader.readexactly(int(length[1]))))
        content = b""  # a stream of one message, such as a renewal, is sent in chunks
        while size := int(await self._reader.readline(), 16):
            content += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return dict(json.loads(content))

    async def send(self, path: str, body: dict[str, Any]) -> bytes:
        """Send a request and return the head of its response."""
        content = json.dumps(body).encode()
        head = (
            f"POST /v3/{path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Accept-Encoding: identity\r\nContent-Length: {len(content)}\r\n"
            "Content-Type: application/json\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        return await self._reader.readuntil(b"\r\n\r\n")

    async def put(self, key: str, value: str, lease: str = "0") -> None:
        """Set a key."""
        await self.call("kv/put", {"key": encoded(key), "value": encoded(value), "lease": lease})

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages of a watch with changes; each is one line of JSON."""
        while line := await self._reader.readline():
            if b'"events"' in line:
                yield line


class Run:
    """The members of a run.

    Args:
        endpoint: `host:port` of etcd.
        members: number of members.
        lease: duration of a lease, in seconds.
    """

    def __init__(self, endpoint: str, members: int, lease: int) -> None:
        self._endpoint, self._lease = endpoint, lease
        self._names = [f"node-{number:05}-abcdef01" for number in range(members)]
        self._leases: dict[int, str] = {}
        self._client = Client(endpoint)
        self._formed_at: dict[int, float] = {}  # by member, in the current generation
        self._stopped: set[str] = set()
        self._number = 1
        self._wake = asyncio.Event()  # the group has formed, or a member has failed
        self._failure: BaseException | None = None

    async def start(self) -> None:
        """Write the generation and start the members."""
        await self._client.open()
        await self._client.put(GENERATION_KEY, self._generation())
        self._tasks = [
            asyncio.create_task(self._run_member(number)) for number in range(len(self._names))
        ]
        for task in self._tasks:
            task.add_done_callback(self._record_end)
        await asyncio.sleep(START_SECONDS + watch_idle_seconds(len(self._names)) / 10)

    async def idle(self, seconds: float) -> None:
        """Wait; a member that fails ends the measurement."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        if self._failure:
            raise self._failure

    def _record_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failure = task.exception()
            self._wake.set()

    async def regroup(self) -> float:
        """Remove the last member; return the seconds until all others have the next generation."""
        number = len(self._names) - 1
        self._tasks.pop().cancel()
        self._names.pop()
        self._formed_at, self._stopped, self._number = {}, set(), self._number + 1
        started_at = time.monotonic()
        await self._client.call("lease/revoke", {"ID": self._leases.pop(number)})
        while len(self._formed_at) < number:
            assert time.monotonic() < started_at + REGROUP_SECONDS, "the group does not form"
            await self.idle(REGROUP_SECONDS)
        return max(self._formed_at.values()) - started_at

    def close(self) -> None:
        """Stop all members."""
        for task in self._tasks:
            task.cancel()

    # --- one member ---

    async def _run_member(self, number: int) -> None:
        await asyncio.sleep(START_SECONDS * number / len(self._names))
        client, watch = Client(self._endpoint), Client(self._endpoint)
        await client.open()
        await watch.open()
        granted = await client.call("lease/grant", {"TTL": str(self._lease)})
        self._leases[number] = granted["ID"]
        await self._put_member(client, number, 0)
        has_full_view = number < COORDINATORS
        end = f"{PREFIX[:-1]}0" if has_full_view else MEMBERS_FOLDER
        keys = {"key": encoded(PREFIX), "range_end": encoded(end)}
        await watch.send("watch", {"create_request": keys})
        view_size = min(len(self._names), GroupLimits().full_view_members)
        await asyncio.gather(
            self._follow(number, watch),
            renew(self._endpoint, granted["ID"], self._lease / RENEWALS),
            read_again(self._endpoint, keys, view_size if has_full_view else len(self._names)),
        )

    async def _put_member(self, client: Client, number: int, after: int) -> None:
        name = self._names[number]
        value = member_value(Member(name, name[:10], ENDPOINT[:-6], after, endpoint=ENDPOINT))
        await client.put(f"{MEMBERS_FOLDER}{name}", value, self._leases[number])

    async def _follow(self, number: int, watch: Client) -> None:
        client = Client(self._endpoint)
        await client.open()
        generation, stop = encoded(GENERATION_KEY).encode(), encoded(STOP_KEY).encode()
        async for message in watch.messages():
            if generation in message:
                self._formed_at[number] = time.monotonic()
                if len(self._formed_at) == len(self._names):
                    self._wake.set()
            elif stop in message:
                await self._put_member(client, number, self._number)
            elif number == 0:
                await self._coordinate(client, message)

    async def _coordinate(self, client: Client, message: bytes) -> None:
        for event in json.loads(message)["result"]["events"]:
            key = base64.b64decode(event["kv"]["key"]).decode()
            if event.get("type") == "DELETE":
                await client.put(STOP_KEY, json.dumps({"number": 1, "reason": f"lost {key}"}))
            elif key.startswith(MEMBERS_FOLDER):
                self._stopped.add(key)
        if len(self._stopped) == len(self._names) and self._number > 1:
            self._stopped = set()
            await client.put(GENERATION_KEY, self._generation())

    def _generation(self) -> str:
        size = len(self._names)
        return generation_value(
            Generation(
                self._number,
                tuple(self._names),
                ENDPOINT,
                endpoints=(ENDPOINT,) * size,
                orders=tuple(range(100, 100 + size)),
            )
        )


async def renew(endpoint: str, lease: str, seconds: float) -> None:
    """Renew a lease until canceled."""
    client = Client(endpoint)
    await client.open()
    while True:
        await asyncio.sleep(seconds)
        response = await client.call("lease/keepalive", {"ID": lease})
        assert int(response.get("result", {}).get("TTL", 0)) > 0, f"a renewal failed: {response}"


async def read_again(endpoint: str, keys: dict[str, str], members: int) -> None:
    """Read the watched keys as often as a member whose watch is silent."""
    client = Client(endpoint)
    await client.open()
    await asyncio.sleep(random.uniform(0, watch_idle_seconds(members)))  # noqa: S311 - spreads the reads
    while True:
        await client.call("kv/range", keys)
        await asyncio.sleep(watch_idle_seconds(members))


def encoded(text: str) -> str:
    """Return a string in base64."""
    return base64.b64encode(text.encode()).decode()


async def measure(endpoint: str, etcd_pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return etcd's CPU cores and requests per second while idle, and the durations and CPU time of regroups."""
    lease = options.lease_seconds or lease_seconds(options.members)
    run = Run(endpoint, options.members, lease)
    await run.start()
    with contextlib.closing(run):
        started_at, used, counts = time.monotonic(), cpu_seconds(etcd_pid), requests(endpoint)
        await run.idle(options.seconds)
        elapsed = time.monotonic() - started_at
        result: dict[str, Any] = {"members": options.members, "lease_seconds": lease}
        result["idle_etcd_cores"] = round((cpu_seconds(etcd_pid) - used) / elapsed, 3)
        for method, count in requests(endpoint).items():
            if difference := count - counts.get(method, 0):
                result[f"idle_{method}_per_second"] = round(difference / elapsed, 1)
        durations, etcd_seconds = [], []
        for _ in range(options.regroups):
            used = cpu_seconds(etcd_pid)
            durations.append(await run.regroup())
            etcd_seconds.append(cpu_seconds(etcd_pid) - used)
            await run.idle(2.0)
    result["regroup_seconds"] = [round(duration, 2) for duration in durations]
    result["regroup_etcd_seconds"] = round(statistics.median(etcd_seconds), 2)
    return result | {"load": round(os.getloadavg()[0], 1)}


def requests(endpoint: str) -> dict[str, int]:
    """Return the number of requests by method so far."""
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=30) as response:
        metrics = response.read().decode()
    return {method: round(float(count)) for method, count in REQUESTS_PATTERN.findall(metrics)}


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=1000, help="number of members (%(default)s)")
    parser.add_argument(
        "--lease-seconds", type=int, help="duration of a lease (as in a run of this size)"
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="duration of the idle phase (%(default)s)"
    )
    parser.add_argument("--regroups", type=int, default=5, help="number of regroups (%(default)s)")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder, etcd_process(Path(folder)) as (endpoint, etcd):
        print(json.dumps(asyncio.run(measure(endpoint, etcd.pid, options)), indent=1))


if __name__ == "__main__":
    main()
