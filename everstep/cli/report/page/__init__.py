"""The report as one self-contained HTML page: `model` decides its content, the rest draws it."""
