"""The commands of `everstep`, one file a group, each thin over functions that know no terminal."""
