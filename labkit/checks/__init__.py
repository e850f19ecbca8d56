"""How an exercise is checked: machinery only. What an exercise is lies in its own room, labkit/exercises/LESSON/SLUG.

::

    case.py         Case, Value, Failure        plain data: what goes to the ranks, what came instead of results
    wire.py         Message, Wire               what was seen on the wire while a case ran
    structure.py    structure_problem           results held against the oracle's structure, before anything else
    finding.py      Finding, Find, Blame        what is wrong, and the mistake it points to
    exercise.py     Exercise, judge             one exercise, and the verdict on one of its cases
    rooms.py        exercises, find             where exercises are, by name
    hidden.py       hidden_cases                where the graders' own cases are, by name
    values.py       integer, tensor, ...        typed access to inputs and results
    as_if.py        as_if                       naming a wrong result by the wrong way that gives it
    on_ranks/                                   what drivers of several lessons share; travels to the ranks with them
    wire_format.py  encode, decode              values as bytes (JSON and safetensors, never pickle)
    drive.py        run_visible                 cases on real ranks through labkit.run
    sweep.py        run_sweep                   many world sizes on virtual ranks, steps counted
    undoing/        undone                      in which line one change makes every case pass, where nothing has a name
    par.py          Par                         what our own solution costs, as golf has a par for each hole
    notebook.py     check, hint, CheckResult    what ``labkit.check`` shows

Points rest on other cases than the ones here; those are not part of what learners are given.
"""
