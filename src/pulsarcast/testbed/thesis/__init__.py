"""The thesis' evaluation (chapter 5), repeated on this machine and judged by the pipeline."""
