"""Append a call of an action to the record of a test; run by the stand-ins."""

import json
import os
from pathlib import Path

inputs = {key.lower(): value for key, value in json.loads(os.environ["INPUTS"]).items()}
with Path(os.environ["STAND_IN_RECORD"]).open("a") as record:
    print(json.dumps({"action": os.environ["ACTION"], "inputs": inputs}), file=record)
