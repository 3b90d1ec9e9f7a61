"""Launch of elastic training programs: one agent for each node, which starts and supervises its workers.

`everstep launch` and `python3 -m everstep.elastic.launch` are the entry points. No module here imports the
packages of the command line, so that an image needs only torch and this package.
"""
