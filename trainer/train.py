"""The training program: `python3 -m trainer.train`, one process for each worker.

`everstep.elastic.Run` contains the elastic part: it joins generations, takes steps until the workers agree
to regroup or a peer is lost, and joins the next, until the run is complete. Each step trains on one
global batch that the workers share, so nothing depends on their number. A process that no agent
started trains as the only worker.
"""

import logging
import os
import sys
from typing import NoReturn

from everstep.elastic import choose_device
from everstep.elastic.accounting.journal import flush_all
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.recovery.worker_process import FAILED, RESTART
from everstep.elastic.training.worker import announce_errors, connect
from everstep.elastic.transport.group import PeerLostError
from everstep.errors import EverstepError
from trainer import models
from trainer.classifier import assemble
from trainer.settings import Settings, parse, result

log = logging.getLogger(__name__)


def main() -> None:
    """Train; exit with 0 if the run is complete, RESTART to be restarted, FAILED if a restart cannot help."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        settings = parse(sys.argv[1:])
        models.check_name(settings.model)
        train(settings)
    except EverstepError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        _exit(FAILED)
    except PeerLostError as error:
        log.warning(
            "the group is broken; this process exits to be restarted: %s",
            str(error).partition("\n")[0],
        )
        _exit(RESTART)


def train(settings: Settings) -> None:
    """Train through all generations of the run that this worker is in."""
    device, accounting = choose_device(), TimeAccount.of_process()
    group = connect(device, accounting)
    if isinstance(group, SingleProcessGroup) and result(settings):
        return
    with announce_errors(group):
        classifier = assemble(settings, group, accounting, device)
    classifier.run.each_epoch(classifier.evaluate)
    for batch in classifier.run:
        classifier.train(batch)


def _exit(code: int) -> NoReturn:
    """Exit without torch's orderly shutdown, which would wait for peers that may be gone."""
    flush_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
