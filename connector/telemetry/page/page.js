"use strict";
// Draws GET /api/status every two seconds. Text is only ever set as text. What is absent is unknown, never 0.

const INTERVAL = 2000;
const PATIENCE = 10000;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let answered = null;
let lostSince = null;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const known = (value) => value !== undefined && value !== null;
const count = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = value < 1000 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  return `${(value / 1000 ** power).toFixed(power && value / 1000 ** power < 10 ? 1 : 0)} ${units[power]}`;
}

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

const clock = (text) => text.slice(11, 19);
const day = (text) => `${text.slice(0, 10)} ${clock(text)} UTC`;
const when = (text, now) => (text.slice(0, 10) === now.slice(0, 10) ? `${clock(text)} UTC` : day(text));

// A page of the documentation, where the package says where that is published; else its place in the repository.
function help(status, page, anchor, words) {
  const site = status.build && status.build.documentation;
  if (!site) return element("span", {}, `${words}: docs/${page}.md`);
  return element("a", { href: `${site.replace(/\/$/, "")}/${page}.html${anchor}` }, words);
}

function show(id, visible) {
  at(id).hidden = !visible;
  return visible;
}

function header(status) {
  const source = status.source || {};
  const names = [source.project, source.instance, source.database, source.change_stream].filter(known);
  at("source").textContent = names.join(" / ") || "spanner-cdc";
  document.title = `${status.state.name} - ${source.change_stream || "spanner-cdc"}`;
  at("state").textContent = status.state.name;
  at("state").dataset.state = status.state.name;
  at("state").dataset.worst = (status.health.alarms || []).some((one) => one.severity === "ERROR") ? "ERROR" : "";
  at("summary").textContent = status.health.summary;
  const why = [
    known(status.state.since) ? `since ${day(status.state.since)}` : "",
    status.state.reason || "",
    status.state.hint || "",
  ].filter(Boolean);
  if (show("why", why.length > 0)) at("why").textContent = why.join(". ");
}

function alarms(status) {
  const list = status.health.alarms || [];
  if (!show("alarms", list.length > 0)) return;
  at("alarms").replaceChildren(
    ...list.map((alarm) =>
      element(
        "div",
        { class: `alarm ${alarm.severity === "ERROR" ? "ERROR" : "WARNING"}`, "data-alarm": alarm.name },
        element("b", {}, `${alarm.severity === "ERROR" ? "Error" : "Warning"}: ${alarm.message}`),
        [alarm.hint, alarm.since && `Since ${day(alarm.since)}.`].filter(Boolean).join(" "),
        " ", help(status, "operations", "#alarms", "All alarms"),
      ),
    ),
  );
}

function figures(status) {
  const { watermark = {}, partitions = {}, spool = {}, retention, history = [] } = status;
  const last = history[history.length - 1];
  const full = known(spool.bytes) && spool.max_bytes ? Math.round((100 * spool.bytes) / spool.max_bytes) : undefined;
  const list = [
    ["Not read yet", known(watermark.sealed_lag_seconds) ? duration(watermark.sealed_lag_seconds) : undefined,
      known(watermark.sealed) ? `complete up to ${clock(watermark.sealed)} UTC` : ""],
    ["Changes a second", last ? count(last.mods_per_second) : undefined, last ? `${bytes(last.bytes_per_second)}/s` : ""],
    ["Partitions", known(partitions.alive) ? count(partitions.alive) : undefined,
      known(partitions.waiting) ? `${count(partitions.waiting)} waiting` : ""],
    ["Data would be lost in", retention && known(retention.runway_seconds) ? duration(retention.runway_seconds) : undefined,
      retention && known(retention.used) ? `${(100 * retention.used).toFixed(1)} % of ${retention.is_default ? "Spanner's default retention" : "the retention"}` : ""],
    ["Spool", known(spool.bytes) ? bytes(spool.bytes) : undefined,
      known(full) ? `${full} % of ${bytes(spool.max_bytes)}` : ""],
  ];
  at("figures").replaceChildren(
    ...list.map(([name, value, more]) =>
      element(
        "div",
        {},
        element("dt", {}, name),
        known(value) ? element("dd", {}, value, element("small", {}, more)) : element("dd", { class: "unknown" }, "unknown"),
      ),
    ),
  );
}

// Replaces what scrolls sideways, and keeps where it was scrolled to.
function scrolled(id, child) {
  const before = at(id).querySelector(".scroll");
  const left = before ? before.scrollLeft : 0;
  const made = element("div", { class: "scroll", tabindex: "0" }, child);
  at(id).replaceChildren(made);
  made.scrollLeft = left;
}

// Drawings have the width of their place, so that their texts have the size of the page's on every screen.
const widthOf = (id) => Math.max(at(id).clientWidth, 240);

function plot(id, points, text, label) {
  const [width, height, left, bottom, top] = [widthOf(id), 150, 60, 20, 8];
  const values = points.filter(([, value]) => known(value));
  at(id).replaceChildren();
  if (values.length < 2) {
    at(id).append(element("p", { class: "quiet" }, "not enough points yet: one is taken every ten seconds"));
    return;
  }
  const first = values[0][0], span = Math.max(values[values.length - 1][0] - first, 1);
  const most = Math.max(...values.map(([, value]) => value)) || 1;
  const x = (time) => left + ((width - left - 6) * (time - first)) / span;
  const y = (value) => height - bottom - ((height - bottom - top) * value) / most;
  const canvas = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    const level = y(most * share);
    canvas.append(drawn("line", { class: "grid", x1: left, x2: width - 6, y1: level, y2: level }));
    canvas.append(drawn("text", { x: left - 6, y: level + 4, "text-anchor": "end" }, text(most * share)));
  }
  const path = values.map(([time, value], index) => `${index ? "L" : "M"}${x(time).toFixed(1)},${y(value).toFixed(1)}`);
  const floor = y(0), end = x(values[values.length - 1][0]).toFixed(1);
  canvas.append(drawn("path", { class: "area", d: `${path.join("")}L${end},${floor}L${x(first)},${floor}Z` }));
  canvas.append(drawn("path", { class: "series", d: path.join("") }));
  const ends = [[first, "start"], [values[values.length - 1][0], "end"]];
  for (const [time, anchor] of ends) {
    const name = new Date(time).toISOString().slice(11, 19);
    canvas.append(drawn("text", { x: x(time), y: height - 4, "text-anchor": anchor }, name));
  }
  at(id).append(canvas);
}

function history(status) {
  const points = (status.history || []).map((point) => [Date.parse(point.time), point]);
  const now = points.length ? points[points.length - 1][1] : undefined;
  const lags = points.map(([time, point]) => [time, point.lag_seconds]);
  plot("lag", lags, duration, `Not read yet; now ${now && known(now.lag_seconds) ? duration(now.lag_seconds) : "unknown"}`);
  const rates = points.map(([time, point]) => [time, point.mods_per_second]);
  plot("rate", rates, count, `Changes a second; now ${now ? count(now.mods_per_second) : "unknown"}`);
  const most = Math.max(...lags.map(([, value]) => value).filter(known), 0);
  at("lag-range").textContent = points.length ? `at most ${duration(most)} in the last hour` : "";
  at("rate-range").textContent = points.length ? `at most ${count(Math.max(...rates.map(([, value]) => value)))}` : "";
}

const or = (value, text) => (known(value) ? text(value) : "unknown");
const MOST_LANES = 40;
const HOUR = 3600000;

// The newest lanes of the last hour of commit time, those that are read first: a reader that catches up is days back.
function lanesOf(all, last) {
  const recent = all.filter((one) => one.state !== "finished" || one.to > last - HOUR);
  const rank = (one) => (one.state === "finished" ? 1 : 0);
  const chosen = new Set([...recent].sort((a, b) => rank(a) - rank(b) || b.from - a.from).slice(0, MOST_LANES));
  return recent.filter((one) => chosen.has(one));
}

function graph(status) {
  const { partitions = {} } = status;
  const all = (partitions.graph || []).map((one) => ({
    ...one,
    from: Date.parse(one.start),
    to: Date.parse(one.end || one.watermark || status.time),
  }));
  at("churn").textContent = ["splits", "merges", "moves"].map((name) => `${name} ${or(partitions[name], count)}`).join(", ");
  if (!all.length) {
    const byExecutors = status.window || status.window_in_progress;
    at("graph").replaceChildren(element("p", { class: "quiet" }, byExecutors
      ? "Spark's executors read the partitions, window by window: the newest window is below"
      : "no partition is known yet: Spanner has not answered the first query"));
    return;
  }
  const last = Math.max(...all.map((one) => one.to));
  const shown = lanesOf(all, last);
  const first = Math.max(Math.min(...shown.map((one) => one.from)), last - HOUR);
  const width = widthOf("graph");
  const left = width < 600 ? 8 : 16 + 7.3 * Math.max(...shown.map((one) => one.id.length));
  const step = 14;
  const height = shown.length * step + 24;
  const x = (time) => left + ((width - left - 8) * (Math.min(Math.max(time, first), last) - first)) / Math.max(last - first, 1);
  const lanes = new Map(shown.map((one, index) => [one.id, 10 + index * step]));
  const canvas = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${shown.length} partitions: ${shown.filter((one) => one.state === "reading").length} are read` });
  for (const one of shown) {
    const level = lanes.get(one.id);
    for (const parent of one.parents || []) {
      if (!lanes.has(parent)) continue;
      const from = lanes.get(parent), start = x(one.from);
      canvas.append(drawn("path", { class: "edge", d: `M${start - 6},${from}C${start},${from} ${start - 6},${level} ${start},${level}` }));
    }
    const lane = drawn("line", { class: `lane ${one.state}`, x1: x(one.from), x2: Math.max(x(one.to), x(one.from) + 3), y1: level, y2: level });
    lane.append(drawn("title", {}, `${one.id}: ${one.state}, from ${day(one.start)}`));
    canvas.append(lane);
    if (width >= 600) canvas.append(drawn("text", { class: "name", x: left - 8, y: level + 4, "text-anchor": "end" }, one.id));
  }
  canvas.append(drawn("text", { x: left, y: height - 4 }, new Date(first).toISOString().slice(11, 19)));
  canvas.append(drawn("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, new Date(last).toISOString().slice(11, 19)));
  at("graph").replaceChildren(canvas);
  if (all.length > shown.length) at("graph").append(element("p", { class: "quiet" }, `${shown.length} of ${all.length}, the newest`));
}

function table(id, heads, rows, nothing) {
  if (!rows.length) {
    at(id).replaceChildren(element("p", { class: "quiet" }, nothing));
    return;
  }
  const kinds = heads.map(([, kind]) => kind || "");
  const cells = (name, row) => row.map((value, index) => element(name, { class: kinds[index] }, value));
  const head = heads.map(([name, kind]) => element("th", { class: kind || "", scope: "col" }, name));
  const body = rows.map((row) => element("tr", {}, ...cells("td", row)));
  const made = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  scrolled(id, made);
}

function lists(status) {
  table("consumers", [["consumer"], ["epochs behind", "number"], ["not delivered yet", "number"], ["events", "number"], ["complete up to"]],
    (status.consumers || []).map((one) => [one.name, or(one.epochs_behind, count), or(one.lag_seconds, duration),
      known(one.events) ? count(one.events) : "", known(one.complete_up_to) ? when(one.complete_up_to, status.time) : ""]),
    "no consumer has registered yet: nothing is deleted from the spool");
  const sink = status.sink || {};
  const destinations = (status.consumers || []).flatMap((one) => [[`${one.name} delivers to`, one.destination],
    [`${one.name} lacks what was committed before`, known(one.incomplete_before) ? when(one.incomplete_before, status.time) : undefined]]);
  const lacking = (status.consumers || []).flatMap((one) => Object.entries(one.incomplete_tables || {})
    .map(([name, why]) => [`incomplete in ${one.name}: ${name}`, why]));
  const maintained = (status.consumers || []).flatMap((one) => [
    [`${one.name} maintained its tables`, known(one.maintained_at) ? when(one.maintained_at, status.time) : undefined],
    ...Object.entries(one.unmaintained_tables || {}).map(([name, why]) => [`not maintained by ${one.name}: ${name}`, why])]);
  const facts = [["sink", sink.type], ...destinations, ...lacking, ...maintained, ["dead letters", sink.dead_letters],
    ["restarts", sink.restarts], ...Object.entries(sink.stopped_tables || {}).map(([name, why]) => [`stopped: ${name}`, why])];
  at("sink").replaceChildren(...facts.filter(([, value]) => known(value)).flatMap(([name, value]) => [
    element("dt", {}, name), element("dd", value && /^(dead letters|stopped: )/.test(name) ? { class: "bad" } : {},
      typeof value === "number" ? count(value) : value)]));
  table("tables", [["table"], ["changes", "number"], ["bytes", "number"], ["a second", "number"]],
    (status.tables || []).map((one) => [one.table, count(one.mods), bytes(one.bytes), or(one.mods_per_second, count)]),
    "nothing was sealed yet");
  table("errors", [["time", "time"], ["severity"], ["what"], ["message", "wide"], ["what to do", "wide"]],
    [...(status.errors || [])].reverse().map((one) => [day(one.time), one.severity, one.table ? `${one.code} ${one.table}` : one.code, one.message, one.hint || ""]),
    "none is recorded");
  const fills = status.backfills || [];
  if (show("backfills-section", fills.length > 0)) {
    table("backfills", [["number"], ["as of", "time"], ["done"], ["tables", "wide"]],
      fills.map((one) => [or(one.number, count), or(one.timestamp, day), one.done ? "yes" : "no",
        (one.tables || []).map((each) => `${each.table}: ${each.state}`).join(", ")]), "");
  }
  const objects = status.objects || [];
  if (show("objects-section", objects.length > 0)) {
    const done = (part, whole, text) => (known(part) ? text(part) + (known(whole) && whole > part ? ` of about ${text(whole)}` : "") : "");
    table("objects", [["table"], ["backfill"], ["rows", "number"], ["bytes", "number"], ["changes"], ["why", "wide"]],
      objects.map(({ table: name, backfill, streaming, errors }) => [name, backfill.state.replaceAll("_", " "),
        done(backfill.rows, backfill.rows_expected, count), done(backfill.bytes, backfill.bytes_expected, bytes), streaming.state,
        [backfill.error, streaming.error, ...(errors || []).slice(-1).map((one) => one.message)].filter(known).join("; ")]), "");
  }
  const window = status.window_in_progress || status.window;
  if (show("window-section", Boolean(window))) {
    at("window").replaceChildren(...Object.entries(window).filter(([, value]) => typeof value !== "object").flatMap(
      ([name, value]) => [element("dt", {}, name.replaceAll("_", " ")), element("dd", {}, value)]));
  }
  at("help").replaceChildren(help(status, "operations", "", "Operations"), " ", help(status, "reference/status-page", "", "This page"));
  at("build").textContent = status.build ? `spanner-cdc ${status.build.version}, Python ${status.build.python}` : "";
}

function draw(status) {
  for (const part of [header, alarms, figures, history, graph, lists]) part(status);
}

function age() {
  at("age").textContent = answered ? `updated ${duration((Date.now() - answered) / 1000)} ago` : "";
  if (!show("lost", lostSince !== null)) return;
  at("lost").textContent = `No answer for ${duration((Date.now() - lostSince) / 1000)}: the process has ended, or cannot be `
    + "reached. What is shown is the last that it reported. `spanner-cdc status` reads the spool without it.";
}

async function poll() {
  const token = sessionStorage.getItem("token"), asked = Date.now();
  try {
    // A process that is suspended accepts connections, and never answers.
    const answer = await fetch("/api/status", { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE) });
    if (!show("token", answer.status === 401)) {
      if (!answer.ok) throw new Error(String(answer.status));
      draw(await answer.json());
      answered = Date.now();
    }
    lostSince = null;
  } catch (error) {
    const expected = error instanceof TypeError || error.name === "TimeoutError" || /^\d+$/.test(error.message);
    if (!expected) console.error(error);
    lostSince = lostSince || asked;
  }
  age();
  setTimeout(poll, INTERVAL);
}

// A link sends no header: with a token, what it leads to is fetched, and shown from memory.
for (const link of document.querySelectorAll("footer a")) {
  link.addEventListener("click", async (event) => {
    const token = sessionStorage.getItem("token");
    if (!token) return;
    event.preventDefault();
    const answer = await fetch(link.href, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
    location.assign(URL.createObjectURL(await answer.blob()));
  });
}

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token-text").value);
  at("token-text").value = "";
  show("token", false);
});
setInterval(age, 1000);
poll();
