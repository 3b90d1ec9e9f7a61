"""The training program inside the image: models, data and the loop, on everstep.elastic."""
