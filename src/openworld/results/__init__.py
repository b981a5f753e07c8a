"""What you can do with a trained run: predict, suggest labels, export, write a model card or a report.

This room reads run folders and data. It never reads the state of a training process.
It may import every room above, up to `planning`.
"""
