"""Print the table of mistakes against checks: python -m tests.checks.mistake_table.

For each exercise: how many wrong answers it meets, how many mistakes its check names, and how many of those a wrong
answer stands for. That each wrong answer fails with its mistake's name is proved by its lesson's test_answers_NN.
"""

from __future__ import annotations

from labkit.checks.rooms import exercises, lessons
from tests.checks.wrong_answers import wrong_answers


def main() -> None:
    """Print one line per exercise of every lesson that has wrong answers."""
    print("exercise  wrong answers  mistakes it names  of which met by one")
    for lesson in lessons():
        for exercise_id, exercise in exercises(lesson).items():
            met = [answer.mistake for answer in wrong_answers(lesson) if answer.exercise == exercise_id]
            names = set(exercise.mistakes)
            print(f"{exercise_id:8}  {len(met):13}  {len(names):17}  {len(names & set(met)):19}")


if __name__ == "__main__":
    main()
