"""Reports on a training run, from its files: figures, timeline, recovery times, screens."""
