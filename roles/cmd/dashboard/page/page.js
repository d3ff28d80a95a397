// Draws the state that the server has. Every text of a cluster becomes a text node: no
// function here makes markup of one.
"use strict";

const WORDS = { ok: "Healthy", warning: "Warning", unknown: "Unknown", problem: "Unhealthy" };
const RESULTS = { ok: "Well", warning: "Warning", unknown: "Unknown", problem: "Problem" }; // of single checks
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

// put sets attributes and adds children; a string becomes a text node.
function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
  return element;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

const known = (level) => (Object.hasOwn(WORDS, level) ? level : "unknown");
const plural = (n, one) => (n === 1 ? "1 " + one : n + " " + one + "s");

// Each level has a form of its own, beside its colour.
const MARKS = {
  ok: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", "m4.8 8.2 2.3 2.3 4.2-4.7"],
  warning: ["M8 1.2 15.4 14.6H.6Z", "M8 6v4M8 12v.6"],
  unknown: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", "M5.9 6.2a2.1 2.1 0 1 1 3.1 1.9c-.7.4-1 .8-1 1.6M8 11.8v.5"],
  problem: ["M5 1h6l4 4v6l-4 4H5l-4-4V5Z", "m5.4 5.4 5.2 5.2m0-5.2-5.2 5.2"],
};
function mark(level, at) {
  const [shape, sign] = MARKS[known(level)];
  return s("svg", { class: "mark", "data-level": known(level), viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", ...at },
    s("path", { class: "shape", d: shape }), s("path", { class: "sign", d: sign }));
}
const state = (level, word) => h("span", { class: "state", "data-level": known(level) }, mark(level), word || WORDS[known(level)]);

const LONG = ["Says", "Why", "Message", "Object", "Where its pods run"]; // columns that break anywhere

// table names each cell by its column: on a phone a row is a list of its cells, and no table to a browser without the roles.
function table(caption, heads, rows) {
  const names = heads.map((t) => t.replace(/^#/, ""));
  return h("div", { class: "scroll", "data-says": caption },
    h("table", { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((t, i) => h("th", { scope: "col", role: "columnheader", class: t.startsWith("#") && "number" }, names[i])))),
      h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map((c, i) => {
        const number = heads[i].startsWith("#") ? "number" : LONG.includes(heads[i]) && "long";
        return i === 0 ? h("th", { scope: "row", role: "rowheader", class: number }, c) : h("td", { role: "cell", class: number, "data-column": names[i] }, h("div", {}, c));
      }))))));
}

const open = new Set(); // keys of the details that are open

// fold hides a part until somebody opens it, and makes it only then.
function fold(key, level, summary, inside, found) {
  const body = h("div", { class: "inside" });
  const fill = () => body.childNodes.length || put(body, {}, inside());
  const details = h("details", {}, h("summary", {}, mark(level), h("span", {}, summary)), body);
  if (found || open.has(key)) {
    details.open = true;
    fill();
  }
  details.addEventListener("toggle", () => {
    if (!found) details.open ? open.add(key) : open.delete(key);
    if (details.open) fill();
    reach();
  });
  return details;
}

// lacking names the unread parts of a section, and the reasons.
const lacking = (view, section) => view.unread.filter((u) => u.section === section)
  .map((u) => h("p", { class: "lacking" }, mark("unknown"), h("span", {}, h("strong", {}, u.what), " cannot be shown: " + u.why)));

let words = []; // of the filter

// empty says that there is none of something, unless it could not be read.
const empty = (view, section, text) => (view.unread.some((u) => u.section === section) || !view.taken ? null :
  h("p", { class: "empty" }, words.length ? "Nothing here matches the filter." : text));

// matches reports whether the texts of something have all words of the filter.
const texts = (x) => (x !== null && typeof x === "object" ? Object.values(x).map(texts).join("\n") : String(x).toLowerCase());
const matches = (x) => {
  const all = texts(x);
  return words.every((w) => all.includes(w));
};

// filtered is the part of a state that matches the filter. A namespace of which only pods match has only these.
function filtered(view) {
  if (!words.length) return view;
  const out = { ...view };
  for (const list of ["problems", "peers", "traffic", "volumes", "hosted", "parts", "events"]) out[list] = view[list].filter(matches);
  out.namespaces = view.namespaces.filter(matches).map((ns) => {
    const pods = matches({ ...ns, pods: [] }) ? [] : ns.pods.filter((p) => matches([ns.name, p]));
    return pods.length ? { ...ns, pods, more: 0, found: true } : ns;
  });
  return out;
}

// copying is a button that copies a command, or selects it where the browser does not let it.
function copying(command) {
  const button = h("button", { type: "button", class: "copy", "aria-label": "Copy " + command }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
      text("announce", "Copied");
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  });
  return button;
}
const step = (s) => (s.command ? h("div", { class: "command" }, h("code", {}, s.text), copying(s.text)) : h("p", {}, s.text));

function problems(view) {
  if (!view.problems.length) return [empty(view, "problems", "None was found.")];
  return h("ul", { class: "problems" }, view.problems.map((p) => h("li", { "data-level": known(p.level) },
    mark(p.level),
    h("div", {},
      h("h3", {}, p.where + ": " + p.subject, h("span", { class: "hidden" }, ", " + WORDS[known(p.level)])),
      h("p", {}, p.message),
      p.fix && p.fix.length > 0 && h("div", { class: "fix" }, h("strong", {}, "Fix"), p.fix.map(step)),
      p.therefore && p.therefore.length && h("p", { class: "fix" }, h("strong", {}, "Therefore "), p.therefore.join("; ")),
      p.docs && h("p", { class: "fix" }, h("a", { href: p.docs, rel: "noreferrer", target: "_blank" }, "About " + p.subject))))));
}

// role puts the words of a role apart: ConsumerAndProvider.
const role = (text) => text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

const wayWord = (level) => ({ ok: "up", warning: "changing", unknown: "unknown", problem: "down" })[level] || "not checked";

function clusters(view) {
  const rows = view.peers.map((p) => [
    p.id, state(p.health), role(p.role),
    p.api ? state(p.api, wayWord(p.api)) : "not checked", p.network ? state(p.network, wayWord(p.network)) : "not checked",
    p.uses ? p.pods : "–", p.serves ? p.hostedPods : "–"]);
  return [
    lacking(view, "clusters"),
    view.peers.length ? h("div", { class: "sides" }, topology(view), table("Peers of this cluster",
      ["Peer", "Health", "Role", "API server", "Network", "#Pods there", "#Its pods here"], rows)) : empty(view, "clusters", "This cluster has no peers."),
    view.peers.map((p) => fold("peer " + p.id, p.health, [h("strong", {}, p.id), " – checks, offers and address"], () => [
      p.server && h("p", {}, "API server: ", h("code", {}, p.server)),
      p.version && h("p", {}, "Version of liqod: " + p.version),
      p.refused && h("p", {}, "Refused by the network of this cluster: " + p.refused),
      table("Checks of " + p.id, ["Check", "Result", "Says"], p.checks.map((c) => [c.subject, state(c.level, RESULTS[known(c.level)]), c.message])),
      p.offers.length > 0 && [h("h3", {}, "Offers"), h("ul", {}, p.offers.map((o) => h("li", {}, o)))],
    ])),
  ];
}

const traffic = (view) => [
  lacking(view, "traffic"),
  view.traffic.length ? table("Traffic with peers", ["Peer", "#Received", "#Sent", "#Round trip", "#Probes lost", "Refused here"], view.traffic.map((t) => [
    t.peer, t.received || "–", t.sent || "–", t.latency ? [t.latency, t.measured && [" at ", clock(t.measured)]] : "–", t.lost || "–",
    [t.packets && "packets: " + t.packets, t.requests && plural(Number(t.requests), "request")].filter(Boolean).join("; ") || "–"])) :
    empty(view, "traffic", "There is no tunnel to a peer."),
];

const clip = (text, n) => ([...text].length > n ? [...text].slice(0, n - 1).join("") + "…" : text);
const DRAWN = 12;

// topology draws this cluster on the left, its peers on the right, and two ways to each: to its
// API server, and through the tunnel.
function topology(view) {
  const worst = ["problem", "unknown", "warning", "ok"];
  const drawn = view.peers.length <= DRAWN ? view.peers
    : [...view.peers].sort((a, b) => worst.indexOf(known(a.health)) - worst.indexOf(known(b.health))).slice(0, DRAWN);
  const step = 124, height = Math.max(drawn.length * step, 150), middle = height / 2;
  const left = { x: 4, w: 158 }, right = { x: 456, w: 240 }, straight = 168;
  const top = (i) => (height - drawn.length * step) / 2 + i * step + 8;
  const text = (x, y, class_, t) => s("text", { x, y, class: class_ }, t);
  const way = (y0, y1, level, label) => {
    const x0 = left.x + left.w, x1 = right.x - straight, half = (x0 + x1) / 2;
    return s("g", { class: "way", "data-level": level ? known(level) : "none" },
      s("path", { d: `M${x0} ${y0} C${half} ${y0} ${half} ${y1} ${x1} ${y1} H${right.x}` }),
      level ? mark(level, { x: x1 + 10, y: y1 - 22, width: 16, height: 16 }) : null,
      text(x1 + (level ? 32 : 10), y1 - 9, "small", label + " " + wayWord(level)));
  };
  const drawPeer = (p, i) => {
    const y = top(i), counts = [];
    if (p.uses) counts.push("→ " + plural(p.pods, "pod") + " there");
    if (p.serves) counts.push("← " + plural(p.hostedPods, "pod") + " here");
    const start = middle + (2 * i + 1 - drawn.length) * Math.min(11, 45 / drawn.length);
    return [
      way(start - 5, y + 38, p.api, "API"), way(start + 5, y + 82, p.network, "network"),
      s("g", { class: "node", "data-level": known(p.health) },
        s("rect", { class: "box", x: right.x, y, width: right.w, height: 108, rx: 10 }), mark(p.health, { x: right.x + 14, y: y + 17, width: 18, height: 18 }),
        text(right.x + 40, y + 32, "name", clip(p.id, 18)), text(right.x + 14, y + 61, "small", clip(role(p.role), 30)),
        text(right.x + 14, y + 86, "small", counts.join("  ") || "no pods"))];
  };
  const says = view.peers.map((p) => `${p.id}: ${WORDS[known(p.health)]}; API server ${wayWord(p.api)}, network ${wayWord(p.network)}`).join(". ");
  const name = view.cluster || "this cluster";
  return h("figure", {},
    s("svg", { class: "topology", viewBox: `0 0 700 ${height}`, role: "img", "aria-label": `${name} and its peers. ${says}.` },
      drawn.map(drawPeer),
      s("g", { class: "self" },
        s("rect", { class: "box", x: left.x, y: middle - 54, width: left.w, height: 108, rx: 10 }),
        text(left.x + 16, middle - 19, "name", clip(name, 12)), text(left.x + 16, middle + 8, "small", "this cluster"),
        text(left.x + 16, middle + 32, "small", clip(view.kubernetes, 17)))),
    view.peers.length > drawn.length && h("figcaption", {}, `The picture shows ${drawn.length} of ${view.peers.length} peers; the table has all.`));
}

function meter(bar) {
  const level = bar.percent >= 100 ? "problem" : bar.percent >= 85 ? "warning" : "ok";
  const fill = h("span", { class: "fill" });
  fill.style.width = Math.min(bar.percent, 100) + "%";
  return h("span", { class: "meter", "data-level": level, "aria-hidden": "true" }, fill);
}

const room = (caption, bars) => table(caption, ["Resource", "#Requested", "#Of", "#%", "Use"],
  bars.map((b) => [b.resource, b.used, b.capacity || "–", b.capacity ? b.percent + " %" : "–", b.capacity && meter(b)]));

function capacity(view) {
  const nodes = view.peers.flatMap((p) => p.nodes.map((n) => ({ ...n, peer: p.id })));
  return [
    lacking(view, "capacity"),
    nodes.length ? h("div", { class: "cards" }, nodes.map((n) => h("article", { class: "card" },
      h("h3", {}, mark(n.health), " " + n.name, h("span", { class: "hidden" }, ", " + WORDS[known(n.health)])),
      h("p", { class: "quiet" }, (n.name === n.peer ? "Virtual node" : "Virtual node of " + n.peer) + (n.message ? ": " + n.message : "")),
      n.bars.length ? room("Capacity of " + n.name, n.bars) : h("p", { class: "empty" }, "Its capacity is not known.")))) :
      empty(view, "capacity", "There is no virtual node: no pods can be offloaded."),
  ];
}

// tint gives a place its colour: each peer has the same everywhere.
const tint = (place) => ({ "data-kind": place.kind, "data-peer": place.kind === "peer" ? Math.max(shown.peers.findIndex((p) => p.id === place.name), 0) % 4 : null });

// split draws in which places the pods of a namespace are; the words are beside it.
function split(ns) {
  const all = ns.places.reduce((sum, p) => sum + p.pods, 0);
  return h("span", { class: "split", "aria-hidden": "true" }, ns.places.filter((p) => p.pods).map((p) => {
    const part = h("span", tint(p));
    part.style.flexGrow = p.pods / all;
    return part;
  }));
}

function places(ns) {
  if (ns.unread) return "The pods cannot be read.";
  return h("div", { class: "places" }, split(ns), h("ul", {}, ns.places.map((p) => h("li", {},
    h("span", { class: "dot", "aria-hidden": "true", ...tint(p) }),
    (p.kind === "here" ? (p.name || "this cluster") + " (here)" : p.name) + ": " + plural(p.pods, "pod") + (p.pods ? ", " + p.ready + " ready" : ""),
    p.note && h("span", { class: "quiet" }, " – " + p.note)))));
}

const trouble = (ns) => [ns.broken > 0 && h("div", {}, state("problem", ns.broken + " in trouble")), ns.waiting > 0 && h("div", {}, state("warning", ns.waiting + " not ready"))];

function namespaces(view) {
  return [
    lacking(view, "namespaces"),
    view.namespaces.length ? table("Offloaded namespaces", ["Namespace", "Health", "Strategy", "Where its pods run", "Pods"], view.namespaces.map((ns) => [
      ns.name, state(ns.level), [ns.strategy, h("br"), h("span", { class: "quiet" }, ns.phase || "not processed")], places(ns),
      ns.unread ? "–" : ns.broken + ns.waiting ? trouble(ns) : "all well"])) : empty(view, "namespaces", "No namespace is offloaded."),
    view.namespaces.filter((ns) => ns.pods.length || ns.differences.length).map((ns) => fold("namespace " + ns.name, ns.level,
      [h("strong", {}, ns.name), " – " + plural(ns.pods.length + ns.more, "pod") + (ns.differences.length ? ", " + plural(ns.differences.length, "difference") + " in providers" : "") +
        (ns.broken + ns.waiting ? ", first " + why(ns.pods[0]) : "")], () => [
        ns.remoteName && h("p", {}, "Its name in the providers is ", h("code", {}, ns.remoteName), "."),
        ns.differences.length > 0 && [h("h3", {}, "Different in providers"), h("ul", {}, ns.differences.map((d) => h("li", {}, d)))],
        ns.pods.length > 0 && podTable("Pods of " + ns.name, ns.pods),
        ns.more > 0 && h("p", { class: "quiet" }, plural(ns.more, "pod") + " more; those in trouble come first."),
      ], ns.found)),
  ];
}
const podTable = (caption, pods) => table(caption, ["Pod", "State", "Cluster", "Node", "Why"],
  pods.map((p) => [p.name, state(p.level, p.state), p.place, p.node || "–", p.why || "–"]));
const why = (pod) => pod.name + " " + pod.state + (pod.why ? ": " + pod.why : "");

const volumes = (view) => [
  lacking(view, "volumes"),
  view.kept && h("p", {}, "Kept data " + view.kept + "."),
  view.volumes.length ? table("Volumes of this cluster's claims", ["Claim", "State", "Size", "Data in", "Why"],
    view.volumes.map((v) => [v.claim, state(v.level, v.phase), v.size, v.where, v.why || "–"])) : empty(view, "volumes", "No claim has the class liqo."),
  view.moreVolumes > 0 && h("p", { class: "quiet" }, plural(view.moreVolumes, "volume") + " more; those in trouble come first."),
];

const hosted = (view) => [
  lacking(view, "hosted"),
  h("div", { class: "cards" }, view.peers.filter((p) => p.limit).map((p) => h("article", { class: "card" },
    h("h3", {}, "Given to " + p.id), h("p", { class: "quiet" }, p.limit), p.given.length > 0 && room("Given to " + p.id, p.given)))),
  view.hosted.length ? table("Namespaces of peers in this cluster", ["Peer", "Namespace here", "Its name there", "#Pods", "#Ready", "State"],
    view.hosted.map((x) => [x.peer, x.namespace, x.original, x.pods, x.ready,
      x.broken + x.pods - x.ready ? trouble({ broken: x.broken, waiting: x.pods - x.ready - x.broken }) : "all well"])) : empty(view, "hosted", "No peer has a namespace in this cluster."),
  view.hosted.filter((x) => x.troubled.length).map((x) => fold("hosted " + x.namespace, x.troubled[0].level,
    [h("strong", {}, x.namespace), " of " + x.peer + " – first " + why(x.troubled[0])], () => [podTable("Pods of " + x.namespace + " that are not ready", x.troubled)])),
];

const parts = (view) => [
  lacking(view, "parts"),
  view.parts.length ? table("Parts of liqod", ["Role", "State", "Object", "#Ready", "Version", "Image", "#Restarts", "Leader"],
    view.parts.map((p) => [p.name, state(p.level, p.level === "ok" ? "Runs" : p.message), p.object, p.ready + "/" + p.want,
      p.version || "–", p.image, p.restarts, p.leader || "–"])) :
    empty(view, "parts", "No Deployment of liqod was found."),
];

function clock(time) {
  const at = new Date(time);
  const day = at.toDateString() === new Date().toDateString() ? "" : at.toLocaleDateString(undefined, { month: "short", day: "numeric" }) + " ";
  return h("time", { datetime: at.toISOString() }, day + at.toLocaleTimeString(undefined, { hour12: false }));
}

const eventTable = (caption, list) => table(caption, ["Time", "Type", "Object", "Reason", "Message", "From"], list.map((e) => [
  clock(e.time), e.warning ? state("warning") : "Normal", e.object + (e.others ? " and " + e.others + " more" : ""), e.reason,
  e.message + (e.count > 1 ? " (" + e.count + " times)" : ""), e.from || "–"]));
const NEWEST = 15;
const events = (view) => {
  const older = view.events.slice(NEWEST);
  return [
    lacking(view, "events"),
    view.events.length ? eventTable("Events, the newest first", view.events.slice(0, NEWEST)) : empty(view, "events", "There are no events."),
    older.length > 0 && fold("events", older.some((e) => e.warning) ? "warning" : "ok", older.length + " older", () => [eventTable("Older events", older)]),
  ];
};

// reach lets the keyboard scroll the tables that are wider than the page.
function reach() {
  for (const e of document.querySelectorAll(".scroll")) {
    const wide = e.scrollWidth > e.clientWidth + 1;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", e.dataset.says]]) wide ? e.setAttribute(name, value) : e.removeAttribute(name);
  }
}
window.addEventListener("resize", reach);

const SECTIONS = { problems, clusters, traffic, namespaces, volumes, capacity, hosted, parts, events };
const drawn = {}; // the part of the state that each section shows

// draw replaces a section whose part of the state has changed, and keeps the focus and the
// scrolled tables.
function draw(id, view) {
  const key = JSON.stringify([words, view[id], view.peers, view.unread, Boolean(view.taken), view.cluster, view.kubernetes]);
  if (drawn[id] === key) return;
  drawn[id] = key;
  const next = h("div", { class: "body" }, [SECTIONS[id](view)].flat(3));
  const old = byId(id).querySelector(".body");
  const reachable = "summary, .scroll, button";
  const focused = [...old.querySelectorAll(reachable)].indexOf(document.activeElement);
  const scrolled = [...old.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
  old.replaceWith(next);
  reach();
  next.querySelectorAll(".scroll").forEach((e, i) => (e.scrollLeft = scrolled[i] || 0));
  if (focused >= 0) [...next.querySelectorAll(reachable)][focused]?.focus({ preventScroll: true });
}

function text(id, value) {
  if (byId(id).textContent !== value) byId(id).textContent = value;
}

let shown = null; // the newest state
function show(view) {
  shown = view;
  const name = view.cluster || "liqod";
  text("cluster", name);
  document.title = `${WORDS[known(view.health)]}: ${name} – liqod`;
  const pill = byId("headline");
  pill.dataset.level = known(view.health);
  if (pill.dataset.says !== view.health + view.headline) {
    pill.dataset.says = view.health + view.headline;
    pill.replaceChildren(mark(view.health), view.headline.charAt(0).toUpperCase() + view.headline.slice(1));
    text("announce", `Cluster ${name}: ${view.headline}`);
  }
  byId("main").toggleAttribute("data-old", Boolean(view.trouble));
  text("about", view.version || view.kubernetes ? `liqod ${view.version || "(version unknown)"} in namespace ${view.namespace}, Kubernetes ${view.kubernetes}` : "");
  drawAll();
}

function drawAll() {
  const view = filtered(shown);
  for (const id of Object.keys(SECTIONS)) draw(id, view);
}

// notice says why the page does not show the state of now.
function notice(...children) {
  const box = byId("notice");
  const next = children.length ? h("p", { class: "notice" }, mark("unknown"), h("span", {}, children)) : "";
  if (box.textContent !== (next && next.textContent)) box.replaceChildren(next);
}
const asOf = () => (shown && shown.taken ? [" What follows is the state of ", clock(shown.taken), "."] : []);

function live(state, ...children) {
  byId("live").dataset.state = state;
  byId("live").replaceChildren(...children.flat());
}

// doubt shows that the state of now is not known.
function doubt(reason) {
  if (shown && !shown.trouble) show({ ...shown, health: "unknown", headline: "unknown", trouble: reason });
  live("lost", "Not connected");
  notice(reason, asOf());
}

let token = "";
// remember uses the storage of the tab, which some settings of browsers forbid.
function remember(use) {
  try {
    return use(sessionStorage);
  } catch {
    return "";
  }
}
function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    token = given;
    remember((store) => store.setItem("token", given));
    history.replaceState(null, "", location.pathname); // so that nobody copies or photographs it
  }
  token = token || remember((store) => store.getItem("token")) || "";
}

let connection = null; // aborts the request
let paused = false;
let quiet = 0;
let patience = 60; // after how many seconds without news the page is old

// awaitNews counts the page as old if no news come.
function awaitNews() {
  clearTimeout(quiet);
  quiet = setTimeout(() => doubt("The cluster has not been read for " + patience + " seconds."), patience * 1000);
}

let seen = 0; // when the newest state came
function received(view) {
  seen = Date.now();
  patience = view.patience;
  awaitNews();
  show(view);
  if (view.trouble) {
    live("lost", "No answer");
    notice(h("strong", {}, "The state of now is not known: "), view.trouble + ".", asOf());
  } else {
    live("live", "Live, as of ", clock(view.taken));
    notice();
  }
}

// ask gets the state. It sends the token in a header, which no other site can.
async function ask(signal) {
  const answer = await fetch("state", { headers: { Authorization: "Bearer " + token }, signal, cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error(await answer.text()), { refused: answer.status === 401 });
  received(await answer.json());
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function connect() {
  if (connection || paused || document.hidden) return;
  const mine = (connection = new AbortController());
  if (shown && Date.now() - seen > patience * 1000) doubt("The cluster is being read.");
  live("waiting", "Waiting for the cluster");
  awaitNews();
  for (let wait = 500; !mine.signal.aborted;) {
    try {
      await ask(mine.signal);
      wait = 500;
      await sleep(shown.every * 1000);
    } catch (e) {
      if (mine.signal.aborted) return;
      if (e.refused) {
        disconnect();
        doubt("This address lacks the token, or has an old one: open the address that liqod dashboard printed.");
        return;
      }
      doubt("liqod dashboard does not answer: is it still running?");
      await sleep(wait);
      wait = Math.min(wait * 2, 8000);
    }
  }
}

function disconnect() {
  clearTimeout(quiet);
  if (connection) connection.abort();
  connection = null;
  live("paused", "Paused", shown && shown.taken ? [", as of ", clock(shown.taken)] : []);
}

// A page that nobody sees does not ask the cluster.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  text("pause", paused ? "Go on" : "Pause");
  paused ? disconnect() : connect();
});
byId("filter").addEventListener("input", (e) => {
  words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (shown) drawAll();
});
window.addEventListener("hashchange", () => location.hash.includes("token=") && (readToken(), disconnect(), connect()));

readToken();
connect();
