// Pure functions of the explorers.

import { between, inkOn, plainColour } from "/js/figure/colours.js";
import { escaped, tag } from "/js/figure/markup.js";
import { powers } from "/js/figure/sliders.js";
import { bytes, seconds, ticks } from "/js/figure/units.js";
import { ringPlayer } from "/js/ring/player.js";
import { ringSeconds, ringSteps, stateBefore, transferTimes } from "/js/ring/steps.js";
import { assert, test } from "./claims.js";

const LINK = { size: 16e6, latency: 5e-6, bandwidth: 450e9, slow: -1 };
const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.abs(b), `${a} is not ${b}`);

test("numbers carry a unit in which they are at least 1", () => {
  assert.equal(seconds(83.3e-6), "83.3 µs");
  assert.equal(seconds(0), "0 ns");
  assert.equal(seconds(0.9999e-3), "1 ms");
  assert.equal(bytes(16e6), "16 MB");
  assert.equal(bytes(999.9e9), "1 TB");
  assert.equal(bytes(0.5), "0.5 B");
});

test("ticks are at 1, 2 or 5 times a power of ten and never past the end", () => {
  for (const end of [1e-6, 0.3, 7, 1234]) {
    const marks = ticks(end, 6);
    assert.ok(marks.length >= 2 && marks.length <= 7 && marks.at(-1) <= end * (1 + 1e-9));
    assert.ok([1, 2, 5].includes(+(marks[1] / 10 ** Math.floor(Math.log10(marks[1]) + 1e-9)).toFixed(6)));
  }
  assert.deepEqual(ticks(0), [0]);
});

test("a mixed colour is written as older programs read it", () => {
  assert.equal(plainColour("color(srgb 0 0.447059 1)"), "rgba(0,114,255,1)");
  assert.equal(plainColour("color(srgb 0.1 0.1 0.1 / 0.22)"), "rgba(26,26,26,0.22)");
  assert.equal(plainColour("rgb(1, 2, 3)"), "rgb(1, 2, 3)");
  assert.equal(plainColour('url("#lk-idle1")'), 'url("#lk-idle1")');
});

test("a slider of powers goes to its end in a hundred steps of one factor and stands at what was given", () => {
  const { options, min, max, step } = powers("size", "tensor", 123456789, 1e3, 1e10, String);
  assert.deepEqual([options.length, options[0], options[100], min, max, step], [101, 1e3, 1e10, 0, 100, 1]);
  assert.equal(options.indexOf(123456789), 73); // 1e3 * 1e7 ** 0.73 is 128.8 million, the nearest of the hundred
  for (let at = 1; at <= 100; at++) {
    assert.ok(options[at] / options[at - 1] > 1.1 && options[at] / options[at - 1] < 1.25);
  }
});

test("text cannot become markup", () => {
  assert.equal(escaped('<b a="1">&'), "&#60;b a=&#34;1&#34;&#62;&#38;");
  assert.equal(tag("g", { a: '"', gone: undefined }), '<g a="&#34;"></g>');
});

test("ink stands out at least 4.5 to 1 on every shade of the scale", () => {
  const light = (hex) => {
    const [r, g, b] = [1, 3, 5]
      .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (let share = 0; share <= 1; share += 0.02) {
    const fill = between("#dbe9f6", "#08306b", share);
    const [low, high] = [light(fill), light(inkOn(fill))].sort((a, b) => a - b);
    assert.ok((high + 0.05) / (low + 0.05) >= 4.5, fill);
  }
});

for (let n = 2; n <= 16; n++) {
  test(`a ring of ${n}: after N-1 steps rank r alone owns chunk r+1, after 2(N-1) all own all`, () => {
    const steps = ringSteps(n);
    const whole = 2 ** n - 1;
    assert.equal(steps.length, 2 * (n - 1));
    stateBefore(steps, n, n - 1).forEach((chunks, r) =>
      chunks.forEach(([mask], c) => assert.equal(mask === whole, c === (r + 1) % n)),
    );
    assert.ok(
      stateBefore(steps, n, steps.length)
        .flat()
        .every(([mask, wrong]) => mask === whole && !wrong),
    );
  });
}

test("with equal links the transfers end when the formula says", () => {
  for (const n of [2, 3, 4, 8, 16]) {
    near(Math.max(...transferTimes(ringSteps(n), n, LINK).map((t) => t[4])), ringSeconds(n, LINK));
  }
});

test("one slow link of four sets the pace of all, as one slow link of all would", () => {
  const one = Math.max(...transferTimes(ringSteps(4), 4, { ...LINK, slow: 1 }).map((t) => t[4]));
  near(one, 6 * (5e-6 + (4 * 4e6) / 450e9));
});

test("what the ring player draws follows from sliders and step alone", () => {
  const view = ringPlayer({ title: "", source: "", n: 4, ...LINK });
  const values = { n: 8, ...LINK };
  const first = view.draw(values, 5, 900);
  view.draw({ n: 3, ...LINK }, 1, 500);
  assert.deepEqual(view.draw(values, 5, 900), first);
  assert.equal(view.steps(values), 14);
  assert.equal((first.svg.match(/data-chunk=/g) ?? []).length, 64);
});
