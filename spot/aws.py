"""Notices from the EC2 instance metadata service, version 2.

Sources: EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance rebalance
recommendations". Both paths respond with 404 while nothing is announced.
"""

from datetime import UTC, datetime

from spot.http import HttpResponse
from spot.notice import Effect, Notice, read_object

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path, not a token
TOKEN_TTL_SECONDS = 21_600  # the service's maximum
TOKEN_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105 - the name of a header
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
ACTION_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"

NOT_FOUND = 404


def read(action: HttpResponse, rebalance: HttpResponse) -> tuple[Notice, ...] | None:
    """Parse the responses of the two paths; None if they are not reliable.

    An interruption notice counts even if the other response is invalid.
    """
    interruptions = _read_action(action)
    recommendations = _read_rebalance(rebalance)
    if interruptions:
        return (*interruptions, *(recommendations or ()))
    if interruptions is None or recommendations is None:
        return None
    return recommendations


def _read_action(response: HttpResponse) -> tuple[Notice, ...] | None:
    """Parse {"action": "terminate", "time": "2017-09-18T08:22:00Z"}."""
    if response.status == NOT_FOUND:
        return ()
    body = read_object(response)
    action = body.get("action") if body else None
    if body is None or not isinstance(action, str):
        return None
    notice = Notice(
        cloud="aws",
        reason=action,
        effect=Effect.STOP,
        deadline=_read_time(body.get("time")),
        cloud_drains=True,  # managed node groups do, on a best-effort basis
    )
    return (notice,)


def _read_rebalance(response: HttpResponse) -> tuple[Notice, ...] | None:
    """Parse {"noticeTime": "2020-10-27T08:22:00Z"}: the time of the recommendation itself."""
    if response.status == NOT_FOUND:
        return ()
    if read_object(response) is None:
        return None
    return (Notice(cloud="aws", reason="rebalance", effect=Effect.ADVICE),)


def _read_time(value: object) -> float | None:
    """Parse 2017-09-18T08:22:00Z into Unix time."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()
