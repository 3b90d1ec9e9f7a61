"""`everstep market ...`: a spot market in the twin's cloud, which takes machines and gives capacity back."""

import json
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from everstep.cli.access import Place, place_to_look
from everstep.cli.commands.options import AsJson, Stack
from everstep.cli.console import results, say
from everstep.cli.screen import clock
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool

app = typer.Typer(no_args_is_help=True, help="Open or close a spot market in the twin's cloud.")
SHOWN = 5  # changes of each pool


@app.command("open")
def open_(
    *,
    stack: Stack,
    seed: Annotated[str, typer.Option(help="Any word; the same word gives the same market.")],
    speed: Annotated[
        float, typer.Option(min=0.001, help="Seconds of the cloud that pass in one of ours.")
    ] = 60.0,
    changes_per_hour: Annotated[
        float,
        typer.Option(min=0.001, help="How often each pool's room changes, per hour of the cloud."),
    ] = 0.6,
) -> None:
    """Let a market decide how many spot machines each pool may have.

    Its changes follow the published statistics of spot traces. Notices and idle times pass at the same speed.
    """
    from twin.clouds.capacity import Parameters, compress_time, open_market

    here = place_to_look(stack)
    _spot_pools(here)
    compress_time(here.workspace.state, speed)
    open_market(here.workspace.state, seed, Parameters(changes_per_hour=changes_per_hour))
    say(f"The market {seed!r} is open, {speed:g} times as fast as a real one.")
    show(stack=stack)


@app.command()
def close(*, stack: Stack) -> None:
    """Let there be room for every machine again, and time pass as it does."""
    from twin.clouds.capacity import close_market, compress_time

    state = place_to_look(stack).workspace.state
    close_market(state)
    compress_time(state, 1.0)
    say("The market is closed: there is room for every machine.")


@app.command()
def show(*, stack: Stack, as_json: AsJson = False) -> None:
    """Say for how many machines each pool has room, and what the market will do next."""
    from twin.clouds.capacity import Settings

    here, now = place_to_look(stack), time.time()
    settings = Settings.load(here.workspace.state)
    pools = _spot_pools(here)
    coming = {pool.name: list(islice(settings.coming(pool, now), SHOWN)) for pool in pools}
    rooms = {pool.name: settings.room(pool, now) for pool in pools}
    if as_json:
        value = {
            name: {
                "room": rooms[name],
                "coming": [{"in_seconds": c.at, "room": c.machines} for c in coming[name]],
            }
            for name in rooms
        }
        results.print(json.dumps({"seed": settings.seed, "pools": value}, indent=2), markup=False)
        return
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("pool", "wanted", "room", "then"):
        table.add_column(column)
    for pool in pools:
        room = rooms[pool.name]
        later = ", ".join(f"{each.machines} in {clock(each.at)}" for each in coming[pool.name])
        shown = "for all" if room is None else f"{room} of {pool.maximum}"
        table.add_row(pool.name, str(pool.desired), shown, later or "no market is open")
    results.print(table)


def _spot_pools(here: Place) -> "list[Pool]":
    """Return the spot pools of a stack that stands on the twin's cloud.

    Raises:
        EverstepError: there are none.
    """
    from twin.clouds.capacity import PoolStore

    pools = [pool for pool in PoolStore(here.workspace.state).all() if pool.capacity == "spot"]
    if not pools:
        raise EverstepError(
            f"the stack {here.workspace.stack} has no spot pools on the twin's cloud",
            f"Bring it up first: everstep up --stack {here.workspace.stack} --twin; "
            "the stack local has machines and no pools: everstep drain, everstep vanish.",
        )
    return pools
