"""`python3 -m everstep.elastic.launch`: one node's agent."""

import sys

from everstep.elastic.launch.launcher import launch

if __name__ == "__main__":
    launch(sys.argv[1:])
