"""What a learner sees when a cell is checked: exercises, visible cases, judgement in words, hints.

::

    case.py         Value, Case, Failure        plain data: what goes to the ranks, what came instead of results
    wire.py         Message, Wire               what was seen on the wire while a case ran
    verdict.py      Verdict, Mistake            what a judge says
    exercise.py     Exercise, judge             one exercise: its driver, its oracle, its judge, its hints
    wire_format.py  encode, decode              values as bytes (JSON and safetensors, never pickle)
    registry.py     exercises, find             lesson number -> exercises
    drive.py        run_case, run_visible       cases on real ranks through labkit.run
    sweep.py        run_sweep                   many world sizes on virtual ranks, steps counted
    notebook.py     check, hint, CheckResult    what ``labkit.check`` shows
    ring_player.py  ring_player                 an all-reduce watched while it runs

Points rest on other cases than the ones here; those are not part of what learners are given.
"""
