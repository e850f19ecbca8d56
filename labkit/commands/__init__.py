"""What the ``labkit`` command does, by who asks for it."""
