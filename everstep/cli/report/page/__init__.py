"""The report as one self-contained HTML page: `model` and `incidents` decide its content, the rest draws it."""
