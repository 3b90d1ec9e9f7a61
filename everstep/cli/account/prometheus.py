"""Check that a cluster has a Prometheus operator, if `platform.monitoring` of its stack needs one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.cli.account.checks import AccountCheck, fault, success
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.cli.engine.context import StackContext

NAME = "Prometheus operator"


def operator_checks(context: "StackContext") -> Iterator[AccountCheck]:
    """Yield the check if the stack needs an operator.

    Without access to the cluster, which may not exist before `up`, the check is a warning.
    """
    from components.platform.operator_objects import API_VERSION, missing_kinds, operator_fault

    if context.config.platform.monitoring.kind != "operator":
        return
    try:
        missing = missing_kinds(context.connect().get(f"/apis/{API_VERSION}", missing={}))
    except EverstepError as error:
        fix = "For a new cluster: set none, run `everstep up`, install the operator, then set operator."
        observed = f"not checked: {error.problem}"
        yield fault(NAME, observed, "platform.monitoring.kind", fix, fatal=False)
        return
    if missing:
        problem = operator_fault(missing)
        yield fault(
            NAME, f"the cluster does not serve {', '.join(missing)}", problem.path, problem.fix
        )
    else:
        yield success(NAME, f"the cluster serves {API_VERSION}", "platform.monitoring.kind")
