// What a node sees, once a second. Read only: everything comes from GET requests to the API.
//
// Names and payloads are other people's: they reach the page as texts and values of attributes,
// never as markup. Tables keep their rows; drawings are small and made anew.

const REFRESH_MS = 1000;
const RETRY_MS = 3000;
const TIMEOUT_MS = 10_000;
const PAST_S = 240;
const SPARK_S = 60;
const SPARK_POINTS = 80;
const APART_S = 0.5;
const RATE_S = 3;
const EVENTS_MAX = 60;
const ROWS_MAX = 300;
const WALK_STEPS = 10;
const READERS_MAX = 4;
const LATE_S = 10;
const FILTER_FROM = 10;
const PAYLOAD_MAX = 1200;
const COLOURS = 6;
const NAME_SHOWN = 11;

const $ = (id) => document.getElementById(id);

// Asking.

class NoSession extends Error {}

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(() => {
    throw new Error("The daemon does not answer. What you see is what it said last.");
  });
  if (response.status === 401) throw new NoSession();
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// Words and numbers.

const NUMBERS = new Intl.NumberFormat("en");
const TIMES = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
// Controls, and signs that turn the direction of what stands around them.
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu;

const count = (value) => NUMBERS.format(value);
const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
const short = (id) => id.slice(-8);
// The names that the node's user gave to peers. The end of an id is never without its dots: a
// stranger can choose an id that ends like a name.
let peerNames = {};
const shortened = (text) => text.length > NAME_SHOWN ? `${text.slice(0, NAME_SHOWN - 1)}…` : text;
const labelOf = (peer) => peerNames[peer] ? shortened(peerNames[peer]) : `…${short(peer)}`;
const lineOf = (id) => `${shortened(peerNames[id] ?? "")} …${short(id)}`.trim();
const titleOf = (id) => [peerNames[id], id].filter(Boolean).join(" ");
const visible = (text) => text.replace(UNSEEN, "\ufffd");

function rateText(value) {
  if (value === null) return "–";
  if (value >= 10_000) return `${count(Math.round(value / 1000))}k`;
  return value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(1);
}

function bytesText(value) {
  if (value === null) return "–";
  const power = value < 1024 ? 0 : Math.min(SIZES.length - 1, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** power;
  return `${scaled >= 100 || power === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${SIZES[power]}`;
}

function spanText(seconds) {
  const parts = SPANS.map(([size, unit], place) => {
    const left = place ? seconds % SPANS[place - 1][0] : seconds;
    return [Math.floor(left / size), unit];
  });
  const first = parts.findIndex(([value]) => value > 0);
  return first < 0 ? "0 s" : parts.slice(first, first + 2).map((part) => part.join(" ")).join(" ");
}

function timeText(microseconds) {
  const time = new Date(microseconds / 1000);
  if (!microseconds || Number.isNaN(time.getTime())) return "not said";
  return `${TIMES.format(time)}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

// Elements.

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
const html = (tag, attributes = {}, ...children) =>
  make(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  make(document.createElementNS(SVG, tag), attributes, children);

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Put texts where `data-is` says. An id is shown by its name and its end, and copied as a whole.
function fill(root, texts) {
  for (const [name, text] of Object.entries(texts)) {
    const element = root.querySelector(`[data-is="${name}"]`);
    const isId = element.matches(".copy");
    if (isId) Object.assign(element, { title: `${titleOf(text)} (click to copy)`, value: text });
    write(element, isId ? lineOf(text) : text);
  }
}

// A row for each item, in their order; rows that stay are kept, with focus and selection.
function fillRows(body, template, items, show) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach(([key, item], place) => {
    const row = known.get(key) ?? $(template).content.firstElementChild.cloneNode(true);
    known.delete(key);
    row.dataset.key = key;
    if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    show(row, item);
  });
  for (const row of known.values()) row.remove();
}

// Counters of the last minutes, by name, and how fast they grow.

class Past {
  #counters = new Map();

  add(name, at, value) {
    let points = this.#counters.get(name) ?? [];
    if (points.at(-1)?.value > value) points = []; // it counts anew
    if (points.length > 1 && points.at(-1).at > at - APART_S) points.pop();
    points.push({ at, value });
    while (points[1]?.at < at - PAST_S) points.shift();
    this.#counters.set(name, points);
  }

  // What was not heard of any more is forgotten.
  tidy(now) {
    for (const [name, points] of this.#counters) {
      if (points.at(-1).at < now) this.#counters.delete(name);
    }
  }

  rate(name) {
    const points = this.#counters.get(name);
    if (points.length < 2) return null;
    const last = points.at(-1);
    const first = points.findLast(({ at }) => at <= last.at - RATE_S) ?? points[0];
    return (last.value - first.value) / (last.at - first.at);
  }

  // Pairs of a time and the rate up to it; not more of them than can be told apart.
  rates(name) {
    const all = this.#counters.get(name);
    const every = Math.ceil(all.length / SPARK_POINTS);
    const bucket = ({ at }) => Math.floor(at / every);
    const points = all.filter((each, place) => !place || bucket(each) > bucket(all[place - 1]));
    return points.slice(1).map(({ at, value }, place) => {
      const before = points[place];
      return [at, (value - before.value) / (at - before.at)];
    });
  }
}

const past = new Past();

// A line over the last minutes, or two of which the second hangs below the first.
function drawSpark(picture, now, names, text = rateText) {
  const lines = names.map((name) => past.rates(name)).filter((line) => line.length > 0);
  const spots = lines.flat();
  const peak = Math.max(0, ...spots.map(([, rate]) => rate));
  const span = Math.max(SPARK_S, ...spots.map(([at]) => now - at));
  const base = names.length > 1 ? 50 : 100;
  const x = (at) => (100 - (100 * (now - at)) / span).toFixed(2);
  const y = (rate, sign) => (base - (sign * base * rate) / (peak || 1)).toFixed(1);
  const label = `The last ${spanText(span)}: at most ${text(peak)} a second`;
  picture.setAttribute("viewBox", "0 0 100 100");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-label", label);
  picture.replaceChildren(
    svg("title", {}, label),
    svg("path", { class: "base", d: `M0 ${base}H100` }),
    ...lines.flatMap((line, place) => {
      const kind = place ? "out" : "in";
      const d = line.map(([at, rate]) => `L${x(at)} ${y(rate, place ? -1 : 1)}`).join("").slice(1);
      return [
        svg("path", { class: `area ${kind}`, d: `M${x(line[0][0])} ${base}L${d}V${base}` }),
        svg("path", { class: `line ${kind}`, d: `M${d}` }),
      ];
    }),
  );
}

// Peers have colours, in the order in which they appear; beyond the last colour they are square.

const places = new Map();

function lookOf(peer) {
  if (!places.has(peer)) places.set(peer, places.size);
  const place = places.get(peer);
  return { colour: `p${place % COLOURS}`, isSquare: Math.floor(place / COLOURS) % 2 === 1 };
}

function dotOf(peer) {
  const { colour, isSquare } = lookOf(peer);
  return `dot ${colour} ${isSquare ? "square" : ""}`;
}

function markAt(x, y, radius, peer, kind) {
  const { colour, isSquare } = lookOf(peer);
  const [width, height] = [2 * radius, 2 * radius];
  const rx = isSquare ? 1.5 : radius;
  return svg("rect", { class: `${kind} ${colour}`, x: x - radius, y: y - radius, width, height, rx });
}

// The node.

let self = "";

function showNode(status, now) {
  for (const name of ["publications", "deliveries", "messages_in", "messages_out", "bytes_in", "bytes_out"]) {
    past.add(name, now, status[name]);
  }
  write($("state"), status.ready ? status.state : `not ready: ${status.state}`);
  $("state").classList.toggle("bad", !status.ready);
  const silent = status.bootstrap.filter((each) => each.state === "unreachable")
    .map((each) => `bootstrap peer ${labelOf(each.peer)} does not answer: ${each.reason}`);
  const tips = [...status.tips, ...silent];
  write($("tips"), tips.join("; "));
  $("tips").hidden = tips.length === 0;
  fill(document, {
    peer: status.peer,
    addresses: status.addresses.map(addressText).join("\n") || "no address",
    uptime: spanText(Date.now() / 1000 - status.started_us / 1e6),
    version: status.version,
    published: rateText(past.rate("publications")),
    delivered: rateText(past.rate("deliveries")),
    "messages-in": rateText(past.rate("messages_in")),
    "messages-out": rateText(past.rate("messages_out")),
    "bytes-in": bytesText(past.rate("bytes_in")),
    "bytes-out": bytesText(past.rate("bytes_out")),
    store: bytesText(status.store_bytes),
    "store-max": bytesText(status.disk_bytes_max),
    "disk-free": bytesText(status.disk_free_bytes),
    peers: count(status.peers),
    "peers-known": count(status.peers_known),
    readers: count(status.readers_connected),
    topics: count(status.topics),
    replicas: count(status.replicas_held),
    relaying: `${count(status.relaying.peers)} peers, ${bytesText(status.relaying.bytes)}`,
  });
  showReach(status.reach);
  $("store").value = status.store_bytes / status.disk_bytes_max;
  drawSpark($("spark-events"), now, ["publications", "deliveries"]);
  drawSpark($("spark-messages"), now, ["messages_in", "messages_out"]);
  drawSpark($("spark-bytes"), now, ["bytes_in", "bytes_out"], bytesText);
  document.title = `${status.ready ? "" : "▲ "}${lineOf(status.peer)} · Pulsarcast`;
}

// An address ends with the node's own id; one through a relay has the relay's before it.
function addressText(text) {
  const direct = text.split("/p2p/")[0];
  return text.includes("/p2p-circuit") ? `${direct} (relay)` : direct;
}

// Who says how others dial the node, and what to do about it, is in the title.
function showReach({ kind, address, reports, relays, advice }) {
  const way = relays.length ? ` by way of ${relays.map(labelOf).join(", ")}` : "";
  write($("reach"), (address ? `${kind} at ${address}` : kind) + way);
  const said = reports.map(({ peer, reached }) => `${labelOf(peer)} could ${reached ? "" : "not "}dial the node`);
  $("reach").title = [...said, advice].filter(Boolean).join("\n");
}

// Topics.

const nameOf = ({ name }) => visible(name) || "(no name)";

function stateOf(topic) {
  const words = [];
  if (topic.starved) words.push("starved: no other member is connected");
  if (topic.missing) words.push(`fetching ${plural(topic.missing, "gap")}`);
  if (topic.held_back) words.push(`${count(topic.held_back)} held back`);
  if (!topic.subscribed) words.push("not subscribed");
  return words.join(", ") || "complete";
}

// A reader is late when it would take it a while to be done at the pace of the topic.
function readerChip({ name, behind, connected }, rate) {
  const shown = name.startsWith("~") ? "unnamed" : visible(name);
  const lag = behind ? `${count(behind)} behind` : "done with all";
  return html("span", {
    class: `reader ${connected ? "here" : "away"} ${behind > 10 + LATE_S * rate ? "late" : ""}`,
    title: `${shown}: ${lag}${connected ? "" : ", not connected"}`,
  }, html("span", { class: "foreign" }, shown), html("b", {}, behind ? `−${count(behind)}` : ""));
}

function showTopics(topics, chosen, now) {
  const wanted = $("filter").value.trim().toLowerCase();
  const isWanted = (text) => text.toLowerCase().includes(wanted);
  const found = topics
    .filter(({ name, aliases }) => isWanted(name) || aliases.some(isWanted))
    .sort((one, other) => one.name.localeCompare(other.name) || one.id.localeCompare(other.id))
    .map((topic) => [topic.id, topic]);
  for (const topic of topics) past.add(topic.id, now, topic.newest);
  fillRows($("topics"), "topic-row", found.slice(0, ROWS_MAX), (row, topic) => {
    const rate = past.rate(topic.id);
    row.ariaCurrent = topic === chosen ? "true" : null;
    row.querySelector("a").href = `#${topic.id}`;
    fill(row, {
      name: nameOf(topic),
      alias: topic.aliases.map(visible).join(", "),
      order: topic.order,
      newest: count(topic.newest),
      rate: rateText(rate),
      up: topic.starved ? "starved" : topic.is_root ? "root" : `↑${topic.parent ? 1 : 0}`,
      down: `↓${topic.children.length}`,
      lazy: `┄${topic.lazy.length}`,
      state: stateOf(topic),
    });
    drawSpark(row.querySelector("svg"), now, [topic.id]);
    const more = topic.readers.length - READERS_MAX;
    const chips = topic.readers.slice(0, READERS_MAX).map((each) => readerChip(each, rate));
    row.querySelector(".readers").replaceChildren(...chips, more > 0 ? `and ${count(more)} more` : "");
  });
  const more = found.length - ROWS_MAX;
  write($("topics-note"),
    topics.length === 0 ? "This node follows no topic."
    : found.length === 0 ? "No topic has this in its name."
    : more > 0 ? `And ${plural(more, "more topic")}.` : "");
  $("filter").hidden = topics.length < FILTER_FROM;
}

function showTopic(topic) {
  fill($("topic"), {
    "topic-name": nameOf(topic),
    "topic-id": topic.id,
    "topic-author": topic.author,
    "topic-version": count(topic.version),
    "topic-publishers": topic.open ? "every peer" : `named peers; this node: ${topic.may_publish}`,
    "topic-tags": topic.tags.map(visible).join(" "),
    "topic-about": visible(topic.description),
  });
  $("topic-tags").hidden = topic.tags.length === 0;
  $("topic-about").hidden = topic.description === "";
  drawTree($("tree"), topic);
}

// Listed topics of the whole network, when somebody asks.
async function findTopics() {
  const words = $("words").value.trim();
  write($("found-note"), words ? "Searching …" : "");
  const { listings, cut } = words
    ? await ask(`/v1/listings?words=${encodeURIComponent(words)}`)
    : { listings: [], cut: false };
  const rows = listings.map((each) => [`${each.author} ${each.id}`, each]);
  fillRows($("found"), "found-row", rows, (row, each) => fill(row, {
    name: nameOf(each),
    tags: (each.tags ?? []).map(visible).join(" "),
    about: visible(each.description ?? ""),
    author: each.author,
    id: each.id,
  }));
  write($("found-note"), cut ? "There may be more: search for more words."
    : words && listings.length === 0 ? "No listed topic has all of these words." : "");
}

// Our place in a topic's tree: parent above, children below, lazy neighbours at our sides.

const TREE = { column: 76, row: 84, top: 22, radius: 10, rows_max: 3, lazy_max: 4 };

function drawTree(picture, topic) {
  const { row, top, radius } = TREE;
  const width = Math.max(260, picture.clientWidth);
  const columns = Math.floor(width / TREE.column);
  const children = topic.children.slice(0, columns * TREE.rows_max);
  const lazy = topic.lazy.slice(0, TREE.lazy_max);
  const [middle, level] = [width / 2, topic.is_root ? top + 24 : top + row];
  const edges = [];
  const peers = [];

  const say = (text, x, y, kind = "") => peers.push(svg("text", { x, y, class: kind }, text));
  const link = (x, y, kind = "") => {
    const bend = (level + y) / 2;
    const d = `M${middle} ${level}C${middle} ${bend} ${x} ${bend} ${x} ${y}`;
    edges.push(svg("path", { class: `edge ${kind}`, d }));
  };
  const put = (peer, role, x, y) => {
    const label = svg("text", { x, y: y + radius + 13 }, labelOf(peer));
    peers.push(svg("g", {}, svg("title", {}, `${role} ${titleOf(peer)}`), markAt(x, y, radius, peer, "fill"), label));
  };

  if (topic.parent) {
    const isAuthor = topic.parent === topic.author;
    link(middle, top);
    if (!isAuthor) edges.push(svg("path", { class: "edge beyond", d: `M${middle} ${top}V0` }));
    put(topic.parent, "parent", middle, top);
    say(isAuthor ? "parent, the author" : "parent", middle + radius + 8, top + 4, "role beside");
  } else if (!topic.is_root) {
    link(middle, top, "lazy");
    peers.push(svg("circle", { class: "ghost", cx: middle, cy: top, r: radius }));
    const why = topic.filters?.length ? "no member: what matches our filters is sent to us" : "looking for a parent";
    say(why, middle + radius + 8, top + 4, "role beside");
  }
  children.forEach((peer, index) => {
    const line = Math.floor(index / columns);
    const fellows = Math.min(columns, children.length - line * columns);
    const apart = Math.min(width / fellows, TREE.column * 1.5);
    const x = middle + ((index % columns) - (fellows - 1) / 2) * apart;
    const y = level + (line + 1) * row;
    link(x, y);
    put(peer, "child", x, y);
  });
  lazy.forEach((peer, index) => {
    const reach = Math.min(middle - 42, 200) * (index < lazy.length - 2 ? 0.53 : 1);
    const x = middle + (index % 2 ? -reach : reach);
    edges.push(svg("path", { class: "edge lazy", d: `M${middle} ${level}H${x}` }));
    put(peer, "lazy neighbour", x, level);
  });
  put(self, "this node", middle, level);
  peers.push(svg("circle", { class: "ring", cx: middle, cy: level, r: radius + 3.5 }));
  if (topic.is_root) say("this node, the root", middle, level - 20, "role");

  const height = level + Math.ceil(children.length / columns) * row + 48;
  const more = topic.children.length - children.length + topic.lazy.length - lazy.length;
  if (more > 0) say(`and ${plural(more, "more neighbour")}`, middle, height - 8, "role");
  const above = topic.starved ? "No neighbour" : topic.is_root ? "This node is the root" : topic.parent ? "One parent" : "No parent";
  const below = plural(topic.children.length, "child", "children");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("aria-label", `${above}, ${below}, ${plural(topic.lazy.length, "lazy neighbour")}`);
  picture.replaceChildren(...edges, ...peers);
}

// A topic's newest events: a lane for each publisher, from left to right by index.

const LANE = { height_min: 20, height_max: 36, height_all: 190, step_min: 11, radius: 4.5, foot: 18 };

const log = { topic: "", events: [], pointed: null, pinned: null };

// Fetch what is new, unless somebody looks: a picture that runs away from under the pointer shows
// nothing. Whether there is something to draw.
async function readLog(topic) {
  const last = log.events.at(-1)?.index ?? 0;
  if (log.topic !== topic.id || topic.newest < last) {
    Object.assign(log, { topic: topic.id, events: [], pointed: null, pinned: null });
    return readLog(topic);
  }
  const isHeld = last > 0 && $("dag").matches(":hover, :focus-visible");
  $("held").hidden = !isHeld;
  const start = Math.max(1, last + 1, topic.newest - EVENTS_MAX + 1);
  if (!isHeld && start <= topic.newest) {
    const id = encodeURIComponent(topic.id);
    const page = await ask(`/v1/topics/${id}/events?start=${start}&limit=${EVENTS_MAX}`);
    log.events = [...log.events, ...page.events.map(begin)].slice(-EVENTS_MAX);
  }
  return !isHeld;
}

// An event as we keep it: of its payload only the beginning, and what is not text in hexadecimal.
function begin(event) {
  const { payload, encoding = "utf-8", parents = [] } = event;
  const isText = encoding === "utf-8";
  const size = isText ? new TextEncoder().encode(payload).length : atob(payload).length;
  const octets = isText ? "" : atob(payload.slice(0, PAYLOAD_MAX / 3));
  const hex = Array.from(octets, (octet) => octet.charCodeAt(0).toString(16).padStart(2, "0"));
  const start = isText ? payload.slice(0, PAYLOAD_MAX) : hex.join(" ");
  const isWhole = isText ? start === payload : octets.length === size;
  return { ...event, parents, size, isText, payload: isWhole ? start : `${start} …` };
}

function drawLog() {
  const { events } = log;
  const [box, picture] = [$("dag"), $("events")];
  for (const { publisher } of events) lookOf(publisher);
  const publishers = [...new Set(events.map(({ publisher }) => publisher))]
    .sort((one, other) => places.get(one) - places.get(other));
  const lane = Math.min(LANE.height_max, Math.max(LANE.height_min, LANE.height_all / publishers.length));
  const height = lane * publishers.length + LANE.foot;
  $("lanes").replaceChildren(...publishers.map((peer) => {
    const dot = html("i", { class: dotOf(peer) });
    const label = html("li", { class: peer === self ? "me" : "", title: titleOf(peer) }, dot, labelOf(peer));
    label.style.height = `${lane}px`;
    return label;
  }));

  const first = events[0]?.index ?? 1;
  const last = events.at(-1)?.index ?? 0;
  const room = box.clientWidth - $("lanes").offsetWidth;
  const step = Math.max(LANE.step_min, (room - 20) / EVENTS_MAX);
  const width = Math.max(room, step * (last - first + 1) + 20);
  const spots = new Map(events.map((event) => [event.id, {
    event,
    x: 14 + (event.index - first + 0.5) * step,
    y: (publishers.indexOf(event.publisher) + 0.5) * lane,
  }]));
  const all = [...spots.values()];
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  picture.replaceChildren(
    ...publishers.map((_, place) => svg("path", { class: "lane", d: `M0 ${(place + 0.5) * lane}H${width}` })),
    ...all.filter(({ event, x }) => event.index % 10 === 0 && x > 30).map(({ event, x }) =>
      svg("text", { x, y: height - 3 }, count(event.index))),
    ...all.flatMap((spot) => spot.event.parents.map((id) => edgeOf(spot, spots.get(id), all, lane))),
    ...all.map((spot) => eventMark(spot, step, lane)),
  );
  box.scrollLeft = box.scrollWidth;
  write($("span"), last ? `${count(first)} to ${count(last)}, linked to their parents` : "none yet");
}

function edgeOf({ event, x, y }, parent, all, lane) {
  const { colour } = lookOf(event.publisher);
  const edge = (kind, d) => svg("path", { class: `edge ${kind} ${colour}`, d, "data-of": event.index });
  if (!parent) return edge("older", `M${x - 12} ${y}H${x}`);
  const wide = x - parent.x;
  const from = `M${parent.x} ${parent.y}`;
  if (y !== parent.y) {
    const bend = Math.min(Math.abs(wide) * 0.6, 48);
    return edge("", `${from}C${parent.x + bend} ${parent.y} ${x - bend} ${y} ${x} ${y}`);
  }
  const isBlocked = all.some((spot) => spot.y === y && spot.x > parent.x && spot.x < x);
  return edge("", isBlocked ? `${from}q${wide / 2} ${-lane * 0.8} ${wide} 0` : `${from}H${x}`);
}

function eventMark({ event, x, y }, step, lane) {
  return svg("g", {
    id: `event-${event.index}`,
    role: "option",
    "aria-label": `Event ${event.index} of ${labelOf(event.publisher)}`,
    "data-of": event.index,
  },
    svg("rect", { class: "hit", x: x - step / 2, y: y - lane / 2, width: step, height: lane }),
    markAt(x, y, LANE.radius, event.publisher, "mark"),
  );
}

// The event that is pointed at, or was clicked, or is the newest.
function showEvent() {
  const newest = log.events.at(-1);
  const event = log.pointed ?? log.pinned ?? newest;
  trace(log.pointed ?? log.pinned);
  $("event").hidden = !event;
  if (!event) return;
  const attributes = Object.entries(event.attributes ?? {}).map(([name, value]) =>
    `${name} = ${value.base64 === undefined ? value : `${value.base64} (base64)`}`);
  const isOwn = event.author === event.publisher;
  $("event-author").hidden = isOwn;
  $("event-name").hidden = !event.name;
  $("event-attributes").hidden = attributes.length === 0;
  showParents($("event-parents"), event);
  fill($("event"), {
    "event-index": `Event ${count(event.index)}`,
    "event-which": event === log.pinned ? "pinned" : event === newest ? "newest" : "",
    "event-by": isOwn ? "author, publisher" : "publisher",
    "event-publisher": event.publisher,
    "event-author": event.author,
    "event-number": count(event.number),
    "event-created": timeText(event.created_us),
    "event-name": visible(event.name ?? ""),
    "event-attributes": visible(attributes.join(", ").slice(0, PAYLOAD_MAX)),
    "event-id": event.id,
    "event-size": `${bytesText(event.size)}${event.isText ? "" : ", not text"}`,
    "event-payload": visible(event.payload),
  });
}

// The way back from an event, along its parents: the first of them, or the one that is clicked.

const walked = { events: [], isBusy: false };

function showParents(element, event) {
  const parents = event.parents ?? [];
  if (element.dataset.key === event.id) return;
  element.dataset.key = event.id;
  element.replaceChildren(...(parents.length ? parents.map((id) =>
    html("button", { class: "step id", "data-to": id, title: `${id} (walk back from it)` }, `…${short(id)}`)) : ["none"]));
}

async function walkTo(id, rows, steps = 1) {
  if (walked.isBusy) return;
  Object.assign(walked, { events: walked.events.slice(0, rows), isBusy: true });
  let note = "";
  for (let next = id; next && steps > 0; steps -= 1) {
    const cid = encodeURIComponent(next);
    write($("walk-note"), `Looking for …${short(next)} …`);
    const event = await ask(`/v1/events/${cid}`).then(begin).catch(({ message }) => {
      note = `…${short(next)}: ${message}`;
    });
    if (!event) break;
    walked.events = [...walked.events, event].slice(-ROWS_MAX);
    next = event.parents[0];
    if (!next) note = "This is a first event: it names no parents.";
  }
  walked.isBusy = false;
  write($("walk-note"), visible(note));
  showWalk();
}

function showWalk() {
  $("walk-on").hidden = !walked.events.at(-1)?.parents.length;
  fillRows($("walk"), "walk-row", walked.events.map((event) => [event.id, event]), (row, event) => {
    row.querySelector(".dot").className = dotOf(event.publisher);
    showParents(row.querySelector(".links"), event);
    fill(row, {
      "walk-id": event.id,
      "walk-number": count(event.number),
      "walk-created": timeText(event.created_us),
      "walk-payload": visible(event.isText ? event.payload : `${bytesText(event.size)}, not text`),
    });
  });
}

// Light up an event and everything that it builds on.
function trace(event) {
  const byId = new Map(log.events.map((each) => [each.id, each]));
  const seen = new Set();
  const open = event ? [event] : [];
  while (open.length) {
    const next = open.pop();
    if (!next || seen.has(next.index)) continue;
    seen.add(next.index);
    open.push(...next.parents.map((id) => byId.get(id)));
  }
  $("events").classList.toggle("tracing", seen.size > 0);
  for (const element of $("events").querySelectorAll("[data-of]")) {
    const index = Number(element.dataset.of);
    element.classList.toggle("seen", seen.has(index));
    if (element.id) element.ariaSelected = String(index === event?.index);
  }
  $("dag").setAttribute("aria-activedescendant", event ? `event-${event.index}` : "");
}

const eventAt = (target) => {
  const index = Number(target.closest("[data-of]")?.dataset.of);
  return log.events.find((event) => event.index === index) ?? null;
};

function pin(event) {
  log.pinned = event ?? null;
  showEvent();
}

function step(key) {
  const end = log.events.length - 1;
  const place = log.events.indexOf(log.pinned);
  const to = {
    ArrowLeft: place < 0 ? end : Math.max(0, place - 1),
    ArrowRight: place < 0 ? end : Math.min(end, place + 1),
    Home: 0,
    End: end,
  }[key];
  if (to === undefined) return false;
  pin(log.events[to]);
  $("events").querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  return true;
}

// Peers.

function showPeers(peers, now) {
  for (const { peer, bytes_in, bytes_out } of peers) {
    past.add(`${peer} in`, now, bytes_in);
    past.add(`${peer} out`, now, bytes_out);
  }
  const rows = peers.slice(0, ROWS_MAX).map((each) => [each.peer, each]);
  fillRows($("peers"), "peer-row", rows, (row, each) => {
    row.querySelector(".dot").className = places.has(each.peer) ? dotOf(each.peer) : "dot";
    fill(row, {
      peer: each.peer,
      address: each.address,
      dialled: each.dialled ? "us" : "them",
      in: bytesText(each.bytes_in),
      "in-rate": `${bytesText(past.rate(`${each.peer} in`))}/s`,
      out: bytesText(each.bytes_out),
      "out-rate": `${bytesText(past.rate(`${each.peer} out`))}/s`,
      queued: bytesText(each.queued_bytes),
    });
  });
  const more = peers.length - ROWS_MAX;
  write($("peers-note"),
    peers.length === 0 ? "No peer is connected." : more > 0 ? `And ${plural(more, "more peer")}.` : "");
}

// The loop.

let wake = () => {};

const rest = (ms) => new Promise((resolve) => {
  wake = resolve;
  setTimeout(resolve, ms);
});

function choose(topics) {
  const byId = (wanted) => topics.find(({ id }) => id === wanted);
  const fullest = topics.toSorted((one, other) => other.newest - one.newest)[0];
  return byId(location.hash.slice(1)) ?? byId(log.topic) ?? fullest;
}

async function refresh() {
  const [status, { topics }, { peers }, { peer_names }] = await Promise.all(
    [ask("/v1/status"), ask("/v1/topics"), ask("/v1/peers"), ask("/v1/peer-names")],
  );
  peerNames = peer_names;
  const now = performance.now() / 1000;
  self = status.peer;
  lookOf(self); // the first colour is ours
  const chosen = choose(topics);
  const isNews = chosen && await readLog(chosen);

  for (const id of ["node", "main"]) $(id).hidden = false;
  $("topic").hidden = !chosen;
  showNode(status, now);
  showTopics(topics, chosen, now);
  if (isNews) drawLog();
  if (chosen) showTopic(chosen);
  showEvent();
  showPeers(peers, now);
  past.tidy(now);
}

function complain(error) {
  const isLocked = error instanceof NoSession;
  $("locked").hidden = !isLocked;
  for (const id of ["node", "main"]) $(id).hidden ||= isLocked;
  $("notice").hidden = !error || isLocked;
  write($("notice"), error?.message ?? "");
  document.body.classList.toggle("stale", Boolean(error));
}

async function run() {
  for (;;) {
    let error = null;
    if (!document.hidden) {
      await refresh().catch((thrown) => { error = thrown; });
      complain(error);
    }
    await rest(error || document.hidden ? RETRY_MS : REFRESH_MS);
  }
}

addEventListener("hashchange", () => wake());
document.addEventListener("visibilitychange", () => wake());
$("filter").addEventListener("input", () => wake());
$("words").addEventListener("change", () => {
  findTopics().catch((error) => write($("found-note"), error.message));
});
$("topics").addEventListener("click", ({ target }) => {
  location.hash = target.closest("tr").dataset.key;
});

$("walk-from").addEventListener("change", ({ target }) => {
  const id = target.value.trim();
  if (id) walkTo(id, 0);
});
$("walk-on").addEventListener("click", () => {
  walkTo(walked.events.at(-1).parents[0], ROWS_MAX, WALK_STEPS);
});
document.addEventListener("click", ({ target }) => {
  const id = target.closest("[data-to]")?.dataset.to;
  const row = target.closest("#walk > li");
  if (id) walkTo(id, row ? [...$("walk").children].indexOf(row) + 1 : 0);
});

document.addEventListener("click", async ({ target }) => {
  const button = target.closest(".copy");
  if (!button || !navigator.clipboard) return;
  await navigator.clipboard.writeText(button.value);
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1000);
});

$("dag").addEventListener("pointerover", ({ target }) => {
  log.pointed = eventAt(target);
  showEvent();
});
$("dag").addEventListener("pointerleave", () => {
  log.pointed = null;
  showEvent();
});
$("dag").addEventListener("click", ({ target }) => {
  const event = eventAt(target);
  pin(event === log.pinned ? null : event);
});
$("dag").addEventListener("keydown", (event) => {
  if (step(event.key)) event.preventDefault();
});
addEventListener("keydown", ({ key }) => {
  if (key === "Escape") pin(null);
});

run();
