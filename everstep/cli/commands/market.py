"""`everstep market ...`: a simulated spot market in the twin's cloud, which limits the size of spot pools."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from everstep.capacity.traces import read_traces
from everstep.cli.commands.options import AsJson, Stack
from everstep.cli.console import results, say, warn
from everstep.cli.durations import clock
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from cloudtwin.facade import SpotPool

app = typer.Typer(no_args_is_help=True, help="Simulate a spot market in the twin's cloud.")
MAX_CHANGES = 5  # number of changes shown for each pool
MAX_PRICES = 2  # number of upcoming prices in the table


@app.command("open")
def open_(
    *,
    stack: Stack,
    seed: Annotated[
        str, typer.Option(help="Any non-empty text; the same text gives the same market.")
    ],
    speed: Annotated[
        float, typer.Option(min=0.001, help="Simulated seconds per real second.")
    ] = 60.0,
    changes_per_hour: Annotated[
        float,
        typer.Option(min=0.001, help="Capacity changes of each pool per simulated hour."),
    ] = 0.6,
) -> None:
    """Let a market decide how many spot machines each pool may have.

    Its changes follow the published statistics of spot traces. Interruption notices and the autoscaler's scale-down
    delay are shortened by the same factor.
    """
    from cloudtwin.facade import open_market

    context = open_running_stack(stack)
    context.require_own_project()
    _spot_pools(context)
    open_market(context.workspace.state, seed, speed=speed, changes_per_hour=changes_per_hour)
    say(f"The market {seed!r} is open, {speed:g} times as fast as a real one.")
    show(stack=stack)


@app.command()
def replay(
    *,
    stack: Stack,
    trace: Annotated[
        list[Path],
        typer.Option(help="Machines of a zone at each tick; repeat it for each zone."),
    ],
    speed: Annotated[
        float, typer.Option(min=0.001, help="Simulated seconds per real second.")
    ] = 60.0,
) -> None:
    """Let recorded capacity decide how many spot machines each pool may have, from now on.

    Each file is named after its zone, or has the lists of several zones; docs/capacity.md has the format. Each pool may
    have at most the machines of its zone. After the end of a file its last values hold. Interruption notices and the
    autoscaler's scale-down delay are shortened by the same factor.
    """
    from cloudtwin.facade import replay_market

    history = read_traces(trace)
    context = open_running_stack(stack)
    context.require_own_project()
    _spot_pools(context)
    zones = replay_market(
        context.workspace.state, history.by_zone(), history.gap_seconds, speed=speed
    )
    replayed = [zone for zone in history.zones if zone in zones.values()]
    ignored = [zone for zone in history.zones if zone not in replayed]
    say(
        f"{history.hours:g} hours of {', '.join(replayed)} are replayed for {', '.join(zones)}, "
        f"{speed:g} times as fast as they were recorded."
    )
    if ignored:
        warn(
            f"not replayed: {', '.join(ignored)} of the trace, where the stack has no spot pool. Name the zones as "
            "the stack does, or add pools in them to cluster.gpuPools."
        )
    show(stack=stack)


@app.command()
def close(*, stack: Stack) -> None:
    """Remove the limits of the market and return to real time."""
    from cloudtwin.facade import close_market

    context = open_running_stack(stack)
    context.require_own_project()
    _spot_pools(context)
    close_market(context.workspace.state)
    say("The market is closed: it no longer limits the pools.")


@app.command()
def show(*, stack: Stack, as_json: AsJson = False) -> None:
    """Show how many machines each pool may have, and their price, now and next."""
    from cloudtwin.facade import market_seed

    context = open_running_stack(stack)
    pools = _spot_pools(context)
    if as_json:
        value = {"seed": market_seed(context.workspace.state), "pools": _as_value(pools)}
        results.print(json.dumps(value, indent=2), markup=False)
    else:
        results.print(_table(pools))


def _as_value(pools: "list[SpotPool]") -> dict[str, object]:
    return {
        pool.name: {
            "available": pool.available,
            "next": [
                {"in_seconds": seconds, "available": machines} for seconds, machines in pool.changes
            ],
            "usd_per_hour": pool.price,
            "max_usd_per_hour": pool.max_price,
            "next_prices": [
                {"in_seconds": seconds, "usd_per_hour": price} for seconds, price in pool.prices
            ],
        }
        for pool in pools
    }


def _table(pools: "list[SpotPool]") -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("pool", "desired", "available", "next", "USD an hour", "next prices"):
        table.add_column(column)
    for pool in pools:
        changes = ", ".join(f"{machines} in {clock(seconds)}" for seconds, machines in pool.changes)
        limit = "unlimited" if pool.available is None else f"{pool.available} of {pool.max_size}"
        placeholder = "no market for this pool" if pool.available is None else "no more changes"
        table.add_row(
            pool.name,
            str(pool.desired_size),
            limit,
            changes or placeholder,
            _price(pool),
            ", ".join(
                f"{price:.3f} in {clock(seconds)}" for seconds, price in pool.prices[:MAX_PRICES]
            ),
        )
    return table


def _price(pool: "SpotPool") -> str:
    """Return the current price of a pool, and its maximum price, above which it has no machines."""
    if pool.price is None:
        return "unknown"
    return (
        f"{pool.price:.3f}" if pool.max_price is None else f"{pool.price:.3f} of {pool.max_price:g}"
    )


def _spot_pools(context: StackContext) -> "list[SpotPool]":
    """Return the spot pools of a stack on the twin's cloud.

    Raises:
        EverstepError: the stack has none.
    """
    from cloudtwin.facade import spot_pools

    pools = spot_pools(context.workspace.state, MAX_CHANGES)
    if not pools:
        stack = context.workspace.stack
        fix = f"Bring it up first: everstep up --stack {stack} --twin"
        if context.config.cluster.kind == "existing":
            fix = "Its machines have no pools: use everstep drain and everstep vanish, or a cloud stack."
        raise EverstepError(f"the stack {stack} has no spot pools on the twin's cloud", fix)
    return pools
