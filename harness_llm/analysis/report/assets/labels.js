/* Places the labels of limits, lines and points in a chart: none covers another label, a text of an axis, a marker or a
   limit's line, if there is room. */
"use strict";
const chartLabels = (() => {
  const GAP = 4; // pixels between a label and what it names
  const STEP = 4; // pixels between two places of a label
  const AWAY = 60; // most pixels between the end of a line and its name
  const FREE = 1; // square pixels of overlap that cannot be seen
  const MARKER = 11; // size of the marker of a point

  const common = (a, b) =>
    Math.max(0, Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x)) *
    Math.max(0, Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y));

  /* Boxes for `labels` in order of importance: the first of the places of each that is free and within `area`, else the
     one with the least overlap; null for an optional label without a free place. A place is a left upper corner. */
  function place(labels, taken, area) {
    const used = [...taken];
    return labels.map(({ width, height, places, optional }) => {
      const boxes = places.map(([x, y]) => ({ x, y, width, height }));
      const costs = boxes.map((box) => used.reduce((sum, other) => sum + common(box, other), width * height - common(box, area)));
      const free = costs.findIndex((cost) => cost < FREE);
      if (free < 0 && optional) return null;
      const box = boxes[free < 0 ? costs.indexOf(Math.min(...costs)) : free];
      used.push(box);
      return box;
    });
  }

  function steps(from, to, step) {
    const count = Math.max(0, Math.floor((to - from) / step));
    return Array.from({ length: count + 1 }, (_, i) => from + i * step);
  }

  /* 0, -STEP, STEP, … */
  const shifts = steps(0, AWAY, STEP).flatMap((shift) => (shift ? [-shift, shift] : [0]));

  const beside = (x, y, { height }) => shifts.map((shift) => [x + GAP, y - height / 2 + shift]);

  /* Above the chart, else at both sides of the line from its top. */
  function besideVertical(x, { width, height }, grid) {
    const sides = steps(grid.y, grid.y + grid.height - height, STEP).flatMap((y) => [[x + GAP, y], [x - GAP - width, y]]);
    return [[x - width / 2, grid.y - height - 1], ...sides];
  }

  /* Above and below the line from its right end. */
  function besideHorizontal(y, { width, height }, grid) {
    const left = steps(0, grid.width - width, 2 * STEP).map((shift) => grid.x + grid.width - width - shift);
    return left.flatMap((x) => [[x, y - height - 1], [x, y + 2]]);
  }

  /* Above, beside and below a marker, then at its corners. */
  function around(x, y, { width, height }) {
    const away = MARKER / 2 + 1;
    const [left, middle, right] = [x - away - width, x - width / 2, x + away];
    const [top, level, bottom] = [y - away - height, y - height / 2, y + away];
    return [[middle, top], [right, level], [left, level], [middle, bottom], [right, top], [left, top], [right, bottom], [left, bottom]];
  }

  const marker = (x, y) => ({ x: x - MARKER / 2, y: y - MARKER / 2, width: MARKER, height: MARKER });

  const limitLine = (limit, at, grid) =>
    limit.axis === "x" ? { x: at - 1, y: grid.y, width: 2, height: grid.height } : { x: grid.x, y: at - 1, width: grid.width, height: 2 };

  function besideLimit(limit, at, size, grid) {
    if (limit.axis === "x") return besideVertical(at, size, grid);
    return limit.outside ? beside(grid.x + grid.width, at, size) : besideHorizontal(at, size, grid);
  }

  return { place, beside, around, besideLimit, marker, limitLine };
})();
