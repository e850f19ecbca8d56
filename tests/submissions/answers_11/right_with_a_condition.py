# base: solution
"""A loader whose thread and loop share a list and a condition; a plan by recursion that remembers."""


# %% starved_step
labkit.answer("starved_step", waits_in="next batch", share=0.34, every=1, cause="each batch loads slower than it trains")


# %% prefetching_loader
def prefetched(batches, depth=2):
    change, stock, state = threading.Condition(), [], {"over": False, "error": None, "left": False}

    def fetch():
        try:
            for batch in batches:
                with change:
                    change.wait_for(lambda: len(stock) < depth or state["left"])
                    if state["left"]:
                        return
                    stock.append(batch)
                    change.notify_all()
        except BaseException as error:
            state["error"] = error
        finally:
            with change:
                state["over"] = True
                change.notify_all()

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        while True:
            with change:
                change.wait_for(lambda: stock or state["over"])
                if not stock:
                    if state["error"] is not None:
                        raise state["error"]
                    return
                batch = stock.pop(0)
                change.notify_all()
            yield batch
    finally:
        with change:
            state["left"] = True
            change.notify_all()
        thread.join()


# %% recompute_plan
def recompute_plan(sizes_mb, times_us, limit_mb):
    count = len(sizes_mb)
    known = {}

    def after(place, held):
        """What is saved at most from here on, and what is kept for it; None where nothing fits."""
        if (place, held) not in known:
            best, stretch = None, 0
            for end in range(place, count + 1):
                if held + stretch > limit_mb:
                    break
                if end == count:
                    ways = (0, ())
                else:
                    ways = after(end + 1, held + sizes_mb[end])
                    ways = ways and (ways[0] + times_us[end], (end, *ways[1]))
                    stretch += sizes_mb[end]
                best = max(best or (-1, ()), ways or (-1, ()))
            known[place, held] = best if best and best[0] >= 0 else None
        return known[place, held]

    return list(after(0, 0)[1])
