"""What people do with a finished run: predict, suggest labels, export, model card, report.

This room reads run folders and data, never the state of a training process.
It may import every room above, up to `planning`.
"""
