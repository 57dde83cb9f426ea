// Requests to the API, the login, and the stream of changes.
import { parse, print } from "./json.js";

const KEY = "windlass-page-key";

/** A refusal of the server, or none at all. */
export class Refusal extends Error {
  /** @param {number} status @param {any} problem */
  constructor(status, problem) {
    super(problem?.detail ?? problem?.title ?? `the server answered ${status}`);
    this.status = status;
    this.code = problem?.code ?? "";
    this.problem = problem;
  }
}

/** The page's half of the login. The other half is a cookie, which no script can read. */
export const login = {
  key: () => localStorage.getItem(KEY),
  keep: (/** @type {string} */ key) => localStorage.setItem(KEY, key),
  forget: () => localStorage.removeItem(KEY),
};

/** Listeners that want to know that the login is over, or that there is one: also in another page of this browser. */
export const onLogin = new Set();
addEventListener("storage", ({ key }) => (key === KEY || key === null) && onLogin.forEach((listener) => listener()));

/** @param {string} path @param {{method?: string, body?: unknown, signal?: AbortSignal, open?: boolean}} [options] */
async function request(path, { method = "GET", body, signal, open = false } = {}) {
  const headers = new Headers();
  const key = login.key();
  if (key && !open) headers.set("X-Windlass-Page", key);
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const sent = body === undefined ? undefined : print(body);
  let response;
  try {
    response = await fetch(path, { method, headers, body: sent, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, { detail: "the server cannot be reached" });
  }
  if (response.ok) return response;
  const told = await response.text();
  let problem = null;
  try {
    problem = parse(told);
  } catch {
    problem = { detail: told.slice(0, 500) };
  }
  if (response.status === 401 && !open) {
    login.forget();
    onLogin.forEach((listener) => listener());
  }
  throw new Refusal(response.status, problem);
}

/** @param {string} path @param {AbortSignal} [signal] */
export async function get(path, signal) {
  return parse(await (await request(path, { signal })).text());
}

/** @param {string} path @param {unknown} body @param {string} [method] */
export async function send(path, body = {}, method = "POST") {
  return parse(await (await request(path, { method, body })).text());
}

/** Logs in with a code or a token. @param {{code?: string, token?: string}} credential */
export async function logIn(credential) {
  const answer = await request("/login", { method: "POST", body: credential, open: true });
  login.keep(parse(await answer.text()).page_key);
}

export async function logOut() {
  await send("/v1/logout");
  login.forget();
}

/** A path with its parts encoded. */
export function path(strings, ...parts) {
  return strings.reduce((whole, string, place) => whole + encodeURIComponent(parts[place - 1]) + string);
}

/** Query parameters without the empty ones. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? "?" + text : "";
}

/** A told time is late by its way, and later if the page was busy: of so many, the earliest is the best. */
const CLOCK_TELLINGS = 8;

/**
 * The clock of the server, by which everything is recorded: that of the browser may be wrong by hours. The stream tells the time, and what
 * one page has learned of it holds for the others of this browser.
 */
export const clock = {
  /** By so many milliseconds the server is ahead. */
  ahead: Number(localStorage.getItem("windlass-clock")) || 0,
  /** @type {number[]} */
  told: [],
  now: () => Date.now() + clock.ahead,
  /** @param {string} time */
  learn(time) {
    const ahead = Date.parse(time) - Date.now();
    if (Number.isNaN(ahead)) return;
    clock.told = [...clock.told, ahead].slice(-CLOCK_TELLINGS);
    clock.ahead = Math.max(...clock.told);
    localStorage.setItem("windlass-clock", String(clock.ahead));
  },
};

/**
 * Reads a stream of server-sent events over fetch, since EventSource cannot send the page key.
 * @param {string} address @param {AbortSignal} signal @param {(kind: string, data: any) => void} tell
 */
async function follow(address, signal, tell) {
  const response = await request(address, { signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      const lines = frame.split("\n");
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (kind) tell(kind, data ? parse(data) : null);
    }
  }
}

/**
 * The connection to `/v1/changes`. A hidden page holds none, and of several visible ones of this browser only one does and tells the
 * others: a browser has six connections for a host, and each stream takes one.
 */
export const changes = {
  /** @type {Set<(sessions: Set<string>, all: boolean) => void>} */
  listeners: new Set(),
  /** @type {Set<() => void>} */
  watchers: new Set(),
  connected: false,
  /** Since when it is not connected. */
  lostAt: 0,
  /** @type {AbortController | null} */
  stop: null,
  /** The other pages of this browser. */
  others: new BroadcastChannel("windlass-changes"),
  isReader: false,
  /** Of which build the server's page is; another than at first means that this one is old. */
  build: "",
  isOld: false,

  open() {
    if (this.stop || document.hidden || !login.key()) return;
    const { signal } = (this.stop = new AbortController());
    this.others.onmessage = ({ data }) => this.heard(data);
    this.others.postMessage({ ask: true });
    const read = () => this.read(signal);
    // The next page takes over when this one is hidden or closed.
    if (navigator.locks) navigator.locks.request("windlass-changes", { signal }, read).catch(() => {});
    else read();
  },

  /** A message of another page. */
  heard({ ask, connected, build, ahead, sessions, all }) {
    if (ask) {
      if (this.isReader) this.others.postMessage(this.standing());
      return;
    }
    if (typeof ahead === "number") clock.ahead = ahead;
    if (sessions) this.tell(new Set(sessions), all);
    else this.set(connected, build);
  },

  standing() {
    return { connected: this.connected, build: this.build, ahead: clock.ahead };
  },

  async read(signal) {
    this.isReader = true;
    let pause = 500;
    while (!signal.aborted && login.key()) {
      try {
        await follow("/v1/changes", signal, (kind, data) => {
          pause = 500;
          clock.learn(data?.now);
          if (kind === "begun") this.begun(data);
          else if (kind === "changed") this.pass(data.sessions, data.more);
        });
      } catch {
        // Said below.
      }
      if (signal.aborted) break;
      this.set(false);
      this.others.postMessage(this.standing());
      await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 2, 10_000);
    }
    this.isReader = false;
  },

  /** The stream is there: whatever was missed is asked for. */
  begun({ build }) {
    this.set(true, build);
    this.others.postMessage(this.standing());
    this.pass([], true);
  },

  /** Tells this page and the others. */
  pass(sessions, all) {
    this.others.postMessage({ sessions, all, ahead: clock.ahead });
    this.tell(new Set(sessions), all);
  },

  close() {
    this.stop?.abort();
    this.stop = null;
    this.others.onmessage = null;
  },

  set(connected, build = "") {
    const isOld = this.isOld || (!!build && !!this.build && build !== this.build);
    this.build ||= build;
    if (connected === this.connected && isOld === this.isOld && (connected || this.lostAt)) return;
    if (connected !== this.connected || !this.lostAt) this.lostAt = connected ? 0 : Date.now();
    Object.assign(this, { connected, isOld });
    this.watchers.forEach((watcher) => watcher());
  },

  tell(sessions, all) {
    this.listeners.forEach((listener) => listener(sessions, all));
  },
};
