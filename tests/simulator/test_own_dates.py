"""Every clock of a virtual rank tells virtual time, whatever it is called and whoever took its name."""

from __future__ import annotations

import datetime as dates
import pickle
import sys
import time
from datetime import date, datetime
from typing import Any

import pytest
import torch.distributed as dist

import labkit


def test_dates_and_clocks_of_all_names_agree_with_virtual_time() -> None:
    def program() -> dict[str, Any]:
        before, clock = datetime.now(), time.clock_gettime(time.CLOCK_MONOTONIC)
        time.sleep(24 * 3600)
        now, today = datetime.now(), date.today()
        found: list[Any] = [None, None]
        dist.all_gather_object(found, (now, today))

        class Stamp(datetime):
            pass

        return {
            "seconds": ((now - before).total_seconds(), time.clock_gettime(time.CLOCK_MONOTONIC) - clock),
            "days": {str(today), time.strftime("%Y-%m-%d"), f"{datetime.today():%Y-%m-%d}", str(now)[:10]},
            "utc": datetime.now(dates.UTC).timestamp() - time.time(),
            "local": time.localtime()[:5] == time.localtime(time.time())[:5] and time.ctime() == time.asctime(),
            "sent": found[0] == found[1] == (now, today) and pickle.loads(pickle.dumps(now)) == now,
            "own": type(Stamp.now()) is Stamp and isinstance(Stamp.now(), datetime) and issubclass(Stamp, datetime),
            "made": (datetime(2020, 1, 2), date.fromisoformat("2020-01-02"), datetime.strptime("2020", "%Y")),
            "now": now,
        }

    for found in labkit.run(program, on=labkit.virtual(2), echo=False).results:
        assert found["seconds"] == (pytest.approx(24 * 3600, abs=0.01),) * 2
        assert len(found["days"]) == 1 and abs(found["utc"]) < 0.01
        assert found["local"] and found["sent"] and found["own"]
        assert found["made"] == (datetime(2020, 1, 2), date(2020, 1, 2), datetime(2020, 1, 1))
        assert type(found["now"]) is datetime and abs((found["now"] - datetime(2026, 1, 2)).days) <= 1
    assert dates.datetime is datetime and datetime.now().timestamp() == pytest.approx(time.time(), abs=5)


def test_an_installed_module_that_took_a_clocks_name_has_virtual_time_while_ranks_run(
    tmp_path: Any, monkeypatch: Any
) -> None:
    package = tmp_path / "site-packages" / "early_bound_clock"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from time import perf_counter, sleep\n")
    monkeypatch.syspath_prepend(str(package.parent))
    import early_bound_clock  # type: ignore[import-not-found]

    real = early_bound_clock.sleep

    def program() -> float:
        import early_bound_clock

        before = early_bound_clock.perf_counter()
        early_bound_clock.sleep(3600)
        return float(early_bound_clock.perf_counter() - before)

    try:
        assert labkit.run(program, on=labkit.virtual(1), echo=False).results == [pytest.approx(3600, abs=0.01)]
        assert early_bound_clock.sleep is real
    finally:
        del sys.modules["early_bound_clock"]
