"""The commands of `everstep`: one file a command, each a thin layer over functions without a terminal."""
