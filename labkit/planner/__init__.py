"""Which way to split a transformer's training step over GPUs, and why.

``model`` says what is trained, ``layout`` how it is split, ``costs`` what programs take beyond arithmetic, ``step`` and
``memory`` what a step takes with one layout, ``plan`` the best of all layouts, ``reasons`` why the others lose.
"""
