// What is found out of a run once.

/** A function of a run that keeps what it made of each. */
export function once(make) {
  const known = new WeakMap();
  return (run) => {
    if (!known.has(run)) known.set(run, make(run));
    return known.get(run);
  };
}
