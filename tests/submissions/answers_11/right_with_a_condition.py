# base: solution
"""A loader whose thread and loop share a list and a condition; a plan that is improved by taking back what fits."""


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

    def fits(kept):
        held, start = 0, 0
        for end in [*sorted(kept), count]:
            if held + sum(sizes_mb[start:end]) > limit_mb:
                return False
            held, start = held + (sizes_mb[end] if end < count else 0), end + 1
        return True

    kept = set(range(count))
    dropped = []
    for each in sorted(range(count), key=lambda each: times_us[each] / sizes_mb[each]):
        if fits(kept):
            break
        kept.discard(each)
        dropped.append(each)
    for each in sorted(dropped, key=lambda each: -times_us[each]):
        if fits(kept | {each}):
            kept.add(each)
    return sorted(kept)
