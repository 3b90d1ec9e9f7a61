"""What AWS announces through the instance metadata service, version 2.

Sources: EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance rebalance
recommendations". Both paths answer 404 while there is nothing to say.
"""

import json
from datetime import UTC, datetime

from spot.notice import Effect, Notice
from spot.wire import Answer

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where tokens are asked for, no token
TOKEN_LIFE_SECONDS = 21_600  # the longest that the service grants
TOKEN_LIFE_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105 - a header's name
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
ACTION_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"

NOTHING = 404


def read(action: Answer, rebalance: Answer) -> tuple[Notice, ...] | None:
    """Turn the answers on the two paths into notices; None where they say nothing to rely on.

    An interruption notice counts even where the other answer makes no sense.
    """
    taken = _read_action(action)
    advised = _read_rebalance(rebalance)
    if taken:
        return (*taken, *(advised or ()))
    if taken is None or advised is None:
        return None
    return advised


def _read_action(answer: Answer) -> tuple[Notice, ...] | None:
    """Read {"action": "terminate", "time": "2017-09-18T08:22:00Z"}."""
    if answer.status == NOTHING:
        return ()
    said = _object(answer)
    action = said.get("action") if said else None
    if said is None or not isinstance(action, str):
        return None
    notice = Notice(
        cloud="aws",
        reason=action,
        effect=Effect.LEAVE,
        deadline=_time(said.get("time")),
        cloud_drains=True,  # a managed node group does, at its best effort
    )
    return (notice,)


def _read_rebalance(answer: Answer) -> tuple[Notice, ...] | None:
    """Read {"noticeTime": "2020-10-27T08:22:00Z"}: when it was said, not when anything happens."""
    if answer.status == NOTHING:
        return ()
    if _object(answer) is None:
        return None
    return (Notice(cloud="aws", reason="rebalance", effect=Effect.ADVICE),)


def _object(answer: Answer) -> dict[str, object] | None:
    """Give the JSON object in an answer; None where there is none."""
    try:
        said = json.loads(answer.body) if answer.status == 200 else None
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _time(said: object) -> float | None:
    """Read 2017-09-18T08:22:00Z as seconds since 1970."""
    try:
        moment = datetime.fromisoformat(str(said))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
