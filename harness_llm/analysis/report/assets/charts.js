/* Draws the charts of a report with Apache ECharts. Colours are CSS variables, so that dark mode and print need no
   script. Texts of the report reach the page only as text nodes and SVG text, never as HTML. */
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LOOKS = 8;
  const DASHES = ["solid", [7, 3], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4], [1, 2], [8, 2, 2, 2, 2, 2]];
  const SYMBOLS = ["circle", "triangle", "rect", "diamond", "emptyCircle", "emptyTriangle", "emptyRect", "emptyDiamond"];
  const NINES = [[0, "0 %"], [Math.log10(2), "50 %"], [1, "90 %"], [2, "99 %"], [3, "99.9 %"], [4, "99.99 %"]];
  const TEXT = { color: "var(--muted)", fontFamily: "inherit", fontSize: 12 };
  const ON_PAPER = { width: 330, height: 220 };
  const WIDE_ON_PAPER = { width: 680, height: 220 };
  const FEW = 40; // points of a line that has a marker at each
  const MOST_LABELS = 3; // names beside the ends of lines; more lines have a key
  const LABEL = 12; // size of labels, and of the numbers of points
  const NOTE = 11;
  const resizers = new Map(); // by element of the chart
  const documents = JSON.parse(document.getElementById("charts").textContent);

  const color = (look) => (look === null ? "var(--grey)" : `var(--s${look % LOOKS})`);
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const written = (value) => (value === null || value === undefined ? "–" : digits.format(value));

  function position(axis, value) {
    return axis.scale === "nines" ? `${digits.format(100 * (1 - 10 ** -value))} %` : `${written(value)}`;
  }

  /* Ends of an axis that are no round numbers have no label. */
  function endLabels(axis, side) {
    if (side !== "x") return {};
    const shown = (end) => (end === null || Number.isInteger(end) ? undefined : false);
    return { showMinLabel: shown(axis.low), showMaxLabel: shown(axis.high) };
  }

  function axisOption(axis, chart, side) {
    const common = {
      type: axis.scale === "log" ? "log" : "value",
      name: axis.name,
      nameLocation: side === "x" ? "middle" : "end",
      nameGap: side === "x" ? 30 : 16,
      nameTextStyle: { ...TEXT, align: side === "x" ? "center" : "left" },
      min: axis.low ?? undefined,
      max: axis.high ?? undefined,
      scale: axis.low === null,
      axisLine: { show: side === "x", lineStyle: { color: "var(--line)" } },
      axisTick: { show: side === "x", lineStyle: { color: "var(--line)" } },
      axisLabel: { ...TEXT, margin: side === "x" ? 12 : 8, hideOverlap: true, ...endLabels(axis, side), formatter: (value) => short.format(value) },
      splitLine: { show: side === "y", lineStyle: { color: "var(--faint)" } },
      minorTick: { show: false },
    };
    if (axis.scale !== "nines") return common;
    const values = NINES.map(([value]) => value);
    const label = (value) => (NINES.find(([known]) => Math.abs(known - value) < 1e-6) ?? ["", ""])[1];
    return {
      ...common,
      axisTick: { ...common.axisTick, customValues: values },
      axisLabel: { ...common.axisLabel, customValues: values, formatter: label },
    };
  }

  function lineSeries(one, alone) {
    const marked = one.form === "marked" || (alone && one.x.length <= FEW);
    return {
      type: "line",
      name: one.name,
      data: one.x.map((x, i) => [x, one.y[i]]),
      step: one.form === "steps" ? "end" : false,
      showSymbol: marked,
      symbol: SYMBOLS[(one.look ?? 0) % LOOKS],
      symbolSize: one.form === "marked" ? 7 : 4,
      lineStyle: { color: color(one.look), width: 1.8, type: DASHES[(one.look ?? 0) % LOOKS] },
      itemStyle: { color: color(one.look), borderColor: color(one.look) },
      emphasis: { disabled: true },
      connectNulls: false,
    };
  }

  function pointSeries(one) {
    return {
      type: "scatter",
      name: one.name,
      data: one.x.map((x, i) => ({ value: [x, one.y[i]], name: one.notes ? one.notes[i] : "" })),
      symbol: SYMBOLS[(one.look ?? 0) % LOOKS],
      symbolSize: one.notes ? 11 : 3,
      itemStyle: { color: color(one.look), opacity: one.notes ? 1 : 0.45 },
      emphasis: { disabled: true },
      tooltip: { show: Boolean(one.notes) },
    };
  }

  /* A band is two stacked lines: an invisible one, and the area above it. */
  function bandSeries(one, number) {
    const base = {
      type: "line", stack: `band-${number}`, showSymbol: false, lineStyle: { opacity: 0 }, silent: true, stackStrategy: "all",
      emphasis: { disabled: true }, tooltip: { show: false },
    };
    const height = one.x.map((x, i) => [x, one.y[i] === null ? null : one.high[i] - one.y[i]]);
    return [
      { ...base, data: one.x.map((x, i) => [x, one.y[i]]) },
      { ...base, data: height, areaStyle: { color: "var(--band)", opacity: 1 } },
    ];
  }

  /* The invisible points make the axes include the limits. */
  function limitSeries(chart) {
    const first = chart.series.find((one) => one.x.length);
    const middle = (values) => values.find((value) => value !== null) ?? 0;
    const points = chart.limits.map((limit) => (limit.axis === "x" ? [limit.value, middle(first.y)] : [middle(first.x), limit.value]));
    const data = chart.limits.map((limit) => ({ [limit.axis === "x" ? "xAxis" : "yAxis"]: limit.value, label: { show: false } }));
    const lineStyle = { color: "var(--limit)", type: [6, 4], width: 1.4 };
    return {
      type: "line", data: points, showSymbol: false, silent: true, lineStyle: { opacity: 0 }, tooltip: { show: false },
      emphasis: { disabled: true }, markLine: { silent: true, symbol: "none", z: 6, data, lineStyle, animation: false },
    };
  }

  function element(tag, text, parent) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function rowsAt(chart, x) {
    return chart.series.filter((one) => one.form !== "points" && one.x.length).map((one) => {
      let nearest = 0;
      one.x.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(one.x[nearest] - x)) nearest = i; });
      const value = written(one.y[nearest]);
      return { one, text: one.form === "band" ? `${value} to ${written(one.high[nearest])}` : value };
    });
  }

  function tip(chart, x) {
    const box = element("div");
    element("strong", `${chart.x.name}: ${position(chart.x, x)}`, box);
    for (const { one, text } of rowsAt(chart, x)) {
      const row = element("div", undefined, box);
      const mark = element("i", undefined, row);
      mark.style.background = color(one.form === "band" ? null : one.look);
      element("span", `${one.name}: ${text}`, row);
    }
    return box;
  }

  function option(chart) {
    const beside = [...named(chart).map((one) => one.name), ...chart.limits.filter((one) => one.outside).map((one) => one.label)];
    const longest = Math.max(0, ...beside.map((name) => name.length));
    const alone = chart.series.every((one) => one.form !== "points");
    const series = chart.series.flatMap((one, i) => {
      if (one.form === "band") return bandSeries(one, i);
      return [one.form === "points" ? pointSeries(one) : lineSeries(one, alone)];
    });
    const timed = chart.group !== "";
    return {
      animation: false,
      aria: { enabled: false },
      grid: { left: 8, right: 16 + Math.min(longest, 24) * 7, top: 40, bottom: 34, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      xAxis: axisOption(chart.x, chart, "x"),
      yAxis: axisOption(chart.y, chart, "y"),
      tooltip: {
        trigger: chart.series.some(isLine) ? "axis" : "item",
        className: "tip",
        confine: true,
        axisPointer: { type: "line", lineStyle: { color: "var(--muted)" }, label: { show: false } },
        formatter: (found) => (Array.isArray(found) ? tip(chart, found[0].axisValue) : element("span", `${found.name}: ${position(chart.x, found.value[0])}, ${written(found.value[1])}`)),
      },
      dataZoom: timed ? [{ type: "inside", xAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseMove: false, filterMode: "none" }] : [],
      series: [...series, ...(chart.limits.length ? [limitSeries(chart)] : [])],
    };
  }

  const isLine = (one) => !["points", "band"].includes(one.form);

  /* Lines with their names at their ends; more lines have a key. */
  function named(chart) {
    const found = chart.series.filter(isLine);
    return found.length > 1 && found.length <= MOST_LABELS ? found : [];
  }

  const pen = document.createElement("canvas").getContext("2d");

  function measured(text, size) {
    pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    return { text, size, width: pen.measureText(text).width, height: size * 1.2 };
  }

  const clipped = (at, low, size) => at >= low - 1 && at <= low + size + 1;

  /* The names of lines at their last visible points, lowest first: others move up. */
  function names(chart, pixel, grid) {
    return named(chart).flatMap((one) => {
      const last = one.x.findLastIndex((x, i) => one.y[i] !== null && clipped(pixel("x", x), grid.x, grid.width));
      if (last < 0) return [];
      const at = [pixel("x", one.x[last]), pixel("y", one.y[last])], size = measured(one.name, LABEL);
      return [{ ...size, fill: color(one.look), y: at[1], places: chartLabels.beside(...at, size) }];
    }).sort((one, other) => other.y - one.y);
  }

  /* The labels of a chart with their possible places, most important first, and the boxes of markers and limits. */
  function labelsOf(chart, pixel, grid) {
    const labels = names(chart, pixel, grid), taken = [];
    for (const limit of chart.limits) {
      const at = pixel(limit.axis, limit.value), size = measured(limit.label, LABEL);
      if (!(limit.axis === "x" ? clipped(at, grid.x, grid.width) : clipped(at, grid.y, grid.height))) continue;
      labels.push({ ...size, fill: "var(--limit)", places: chartLabels.besideLimit(limit, at, size, grid) });
      taken.push(chartLabels.limitLine(limit, at, grid));
    }
    for (const one of chart.series.filter((each) => each.notes)) {
      one.notes.forEach((note, i) => {
        const at = [pixel("x", one.x[i]), pixel("y", one.y[i])], size = measured(note, NOTE);
        labels.push({ ...size, fill: "var(--text)", places: chartLabels.around(...at, size), optional: true });
        taken.push(chartLabels.marker(...at));
      });
    }
    return { labels, taken };
  }

  /* Boxes of the texts of the axes. */
  function axisTexts(host, drawn) {
    const frame = host.querySelector("svg").getBoundingClientRect();
    const scale = drawn.getWidth() / (frame.width || 1);
    return [...host.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect()).map((box) => ({
      x: (box.left - frame.left) * scale, y: (box.top - frame.top) * scale, width: box.width * scale, height: box.height * scale,
    }));
  }

  function drawLabels(host, chart, drawn) {
    const show = (graphic) => { drawn.setOption({ graphic }, { replaceMerge: ["graphic"] }); drawn.getZr().flush(); };
    show([]);
    const grid = drawn.getModel().getComponent("grid").coordinateSystem.getRect();
    const pixel = (axis, value) => drawn.convertToPixel({ [`${axis}AxisIndex`]: 0 }, value);
    const { labels, taken } = labelsOf(chart, pixel, grid);
    const area = { x: 0, y: 0, width: drawn.getWidth(), height: drawn.getHeight() };
    const boxes = chartLabels.place(labels, [...axisTexts(host, drawn), ...taken], area);
    show(labels.flatMap(({ text, size, fill }, i) => (boxes[i] === null ? [] : [{
      type: "text", silent: true, z: 100, x: boxes[i].x, y: boxes[i].y,
      style: { text, fill, fontSize: size, fontFamily: "inherit", lineHeight: boxes[i].height, stroke: "var(--card)", lineWidth: 4 },
    }])));
  }

  /* The key of a chart with many lines: a piece of each line and its name. */
  function key(chart, host) {
    const box = element("div");
    box.className = "key";
    box.setAttribute("aria-hidden", "true");
    for (const one of chart.series.filter(isLine)) {
      const item = element("span", undefined, box);
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", "0 0 30 8");
      const line = document.createElementNS(SVG, "line");
      const dashes = DASHES[(one.look ?? 0) % LOOKS];
      const look = { x1: 0, y1: 4, x2: 30, y2: 4, "stroke-width": 2, stroke: color(one.look), "stroke-dasharray": dashes === "solid" ? "none" : dashes.join(" ") };
      for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
      svg.append(line);
      item.append(svg, one.name);
    }
    host.before(box);
  }

  /* Left and right move the pointer along the first line; the values are announced. */
  function keys(host, chart, drawn, output) {
    const line = chart.series.findIndex(isLine);
    if (line < 0) return;
    const skipped = chart.series.slice(0, line).filter((one) => one.form === "band").length;
    const one = chart.series[line];
    let at = -1;
    host.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Escape") { drawn.dispatchAction({ type: "hideTip" }); return; }
      at = Math.max(0, Math.min(one.x.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)));
      drawn.dispatchAction({ type: "showTip", seriesIndex: line + skipped, dataIndex: at });
      const values = rowsAt(chart, one.x[at]).map((row) => `${row.one.name} ${row.text}`);
      output.textContent = `${position(chart.x, one.x[at])}: ${values.join(", ")}`;
    });
  }

  /* The table of the values is made when it is opened. */
  function table(details, chart) {
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const box = element("div", undefined, details);
      box.className = "scroll";
      box.tabIndex = 0;
      for (const one of chart.series.filter((each) => each.form !== "points" || each.notes)) {
        const made = element("table", undefined, box);
        element("caption", one.name, made);
        const head = element("tr", undefined, element("thead", undefined, made));
        const band = one.form === "band";
        for (const name of [chart.x.name, band ? "lowest" : chart.y.name, ...(band ? ["highest"] : []), ...(one.notes ? ["trial"] : [])]) {
          element("th", name, head).scope = "col";
        }
        const body = element("tbody", undefined, made);
        one.x.forEach((x, i) => {
          const row = element("tr", undefined, body);
          element("th", position(chart.x, x), row).scope = "row";
          element("td", written(one.y[i]), row);
          if (band) element("td", written(one.high[i]), row);
          if (one.notes) element("td", one.notes[i], row);
        });
      }
    });
  }

  function draw(host) {
    const chart = documents[host.dataset.chart];
    const count = chart.series.filter(isLine).length;
    if (count > MOST_LABELS) key(chart, host);
    const drawn = echarts.init(host, null, { renderer: "svg" });
    /* With a view box, the picture scales to the width of the paper. */
    drawn.on("rendered", () => {
      const svg = host.querySelector("svg");
      svg.setAttribute("viewBox", `0 0 ${drawn.getWidth()} ${drawn.getHeight()}`);
      svg.setAttribute("aria-hidden", "true");
    });
    drawn.setOption(option(chart));
    resizers.set(host, (size) => { drawn.resize(size); drawLabels(host, chart, drawn); });
    drawn.on("datazoom", () => drawLabels(host, chart, drawn));
    if (chart.group) {
      drawn.group = chart.group;
      echarts.connect(chart.group);
      host.addEventListener("dblclick", () => drawn.dispatchAction({ type: "dataZoom", start: 0, end: 100 }));
    }
    const figure = host.closest("figure");
    keys(host, chart, drawn, figure.querySelector("output"));
    table(figure.querySelector("details.values"), chart);
    new ResizeObserver(() => resizers.get(host)()).observe(host); // draws the labels at first too
  }

  /* The layout of the paper is unknown before it is printed: A4 with two charts in a line. */
  function prepare() {
    document.querySelectorAll("details.printed").forEach((one) => { one.open = true; });
    for (const host of document.querySelectorAll("[data-chart]")) {
      resizers.get(host)(host.closest("figure").matches(".wide") ? WIDE_ON_PAPER : ON_PAPER);
    }
  }

  document.querySelectorAll("[data-chart]").forEach(draw);
  window.addEventListener("beforeprint", prepare);
  window.addEventListener("afterprint", () => resizers.forEach((resize) => resize({ width: "auto", height: "auto" })));
})();
