"""Launch of elastic training programs: one agent for each node, which starts and supervises its workers.

`everstep launch` and `python3 -m everstep.elastic.launch` are the entries. Nothing here imports the
command line's packages, so that an image needs torch and this package only.
"""
