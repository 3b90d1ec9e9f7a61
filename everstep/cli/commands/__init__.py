"""The commands of `everstep`: one file per command, each a thin layer over functions without a terminal."""
