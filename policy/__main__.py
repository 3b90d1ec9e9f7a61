"""The policy pack: `pulumi preview --policy-pack policy`."""

import sys
from pathlib import Path

# Pulumi puts this folder on the path, but its modules import each other as the package `policy`, one level up.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pulumi_policy import PolicyPack

from policy.pack import NAME, policies

PolicyPack(NAME, policies())
