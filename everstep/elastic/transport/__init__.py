"""Transport: messages between agent and worker, and collectives between workers."""
