// Tests that a page runs: `test` says what is claimed, `run` tries all and returns what did not hold.

const claims = [];

export const test = (claim, trial) => claims.push([claim, trial]);

/** Try every claim; { passed, failed: [sentence] }. */
export async function run() {
  const failed = [];
  for (const [claim, trial] of claims) {
    try {
      await trial();
    } catch (error) {
      failed.push(`${claim}: ${error.stack}`);
    }
  }
  return { passed: claims.length - failed.length, failed };
}

function isSame(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && isSame(a[key], b[key]));
}

export const assert = {
  ok(value, words = "it does not hold") {
    if (!value) throw new Error(words);
  },
  equal(a, b) {
    assert.ok(Object.is(a, b), `${a} is not ${b}`);
  },
  deepEqual(a, b) {
    assert.ok(isSame(a, b), `${JSON.stringify(a)} is not ${JSON.stringify(b)}`);
  },
};
