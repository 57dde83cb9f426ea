// The dashboard: the login, the frame around all screens, and the keyboard.
import { Component, render } from "./vendor/preact.mjs";
import { html, go, Link, useEffect, useLayoutEffect, useNow, useRef, useRoute, useState, Wrong, length } from "./ui.js";
import { changes, get, login, logIn, logOut, onLogin } from "./api.js";
import { Now, useOverview } from "./now.js";
import { Waiting } from "./people.js";
import { Session, Sessions } from "./sessions.js";
import { Batch, Call, Calls } from "./calls.js";
import { Schedules, Task, Tasks, Workers } from "./tasks.js";
import { Policy, Tool, Tools } from "./tools.js";

const MENU = [
  ["/", "Now"],
  ["/ui/waiting", "Waits for you"],
  ["/ui/sessions", "Sessions"],
  ["/ui/calls", "Calls"],
  ["/ui/tasks", "Tasks"],
  ["/ui/schedules", "Schedules"],
  ["/ui/tools", "Tools"],
  ["/ui/policy", "Policy"],
  ["/ui/workers", "Workers"],
];

/**
 * The screens by their paths; a part in braces is a name.
 * @type {[string, (props: any) => any][]}
 */
const SCREENS = [
  ["/", Now],
  ["/ui/waiting", Waiting],
  ["/ui/sessions", Sessions],
  ["/ui/sessions/{session}", Session],
  ["/ui/sessions/{session}/batches/{batch}", Batch],
  ["/ui/sessions/{session}/tasks/{task}", Task],
  ["/ui/calls", Calls],
  ["/ui/calls/{call}", Call],
  ["/ui/tasks", Tasks],
  ["/ui/schedules", Schedules],
  ["/ui/tools", Tools],
  ["/ui/tools/{tool}", Tool],
  ["/ui/policy", Policy],
  ["/ui/workers", Workers],
];

/** A part of the address; somebody may have written one that is no encoding of anything. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function screenOf(path) {
  const parts = path.split("/");
  for (const [pattern, screen] of SCREENS) {
    const wanted = pattern.split("/");
    if (wanted.length !== parts.length) continue;
    const names = {};
    const fits = wanted.every((part, place) => {
      if (!part.startsWith("{")) return part === parts[place];
      names[part.slice(1, -1)] = decoded(parts[place]);
      return parts[place] !== "";
    });
    if (fits) return { screen, names };
  }
  return null;
}

function App() {
  const [loggedIn, setLoggedIn] = useState(!!login.key());
  const [error, setError] = useState(null);
  useLayoutEffect(() => {
    const look = () => setLoggedIn(!!login.key());
    const takeCode = () => {
      // The code goes out of the address before anything else.
      const code = /^#login=([0-9a-f]+)$/.exec(location.hash)?.[1];
      if (location.hash) history.replaceState(null, "", location.pathname + location.search);
      if (code) enter({ code });
    };
    onLogin.add(look);
    // A link that is opened in a page that is there already loads nothing: only the fragment changes.
    addEventListener("hashchange", takeCode);
    takeCode();
    return () => (onLogin.delete(look), removeEventListener("hashchange", takeCode));
  }, []);
  useEffect(() => {
    if (!loggedIn) return;
    changes.open();
    return () => changes.close();
  }, [loggedIn]);
  const enter = async (credential) => {
    try {
      await logIn(credential);
      setError(null);
      setLoggedIn(true);
    } catch (refused) {
      setError(refused);
    }
  };
  return loggedIn ? html`<${Frame} leave=${() => setLoggedIn(false)} />` : html`<${LogIn} enter=${enter} error=${error} />`;
}

function LogIn({ enter, error }) {
  const [token, setToken] = useState("");
  return html`<main class="login"><h1>Windlass</h1>
    <p>Run <code>windlass open</code> beside the data folder and open the link that it prints.</p>
    ${error && html`<${Wrong} error=${error} />`}
    <form onSubmit=${(event) => (event.preventDefault(), enter({ token }))}>
      <label for="token">Or paste a token</label>
      <input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value.trim())} />
      <button disabled=${!token}>Log in</button>
    </form></main>`;
}

function Frame({ leave }) {
  const { path, query } = useRoute();
  const main = useRef(null);
  const [help, setHelp] = useState(false);
  const first = useRef(true);
  const [keys, setKeys] = useKeys(() => setHelp((open) => !open));
  // After a navigation the reader begins at the new screen.
  useLayoutEffect(() => {
    if (first.current) return void (first.current = false);
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [path]);
  const found = screenOf(path);
  const overview = useOverview();
  const waits = overview.data?.waiting ?? 0;
  useLayoutEffect(() => {
    const name = MENU.find(([to]) => to === path)?.[1] ?? path.split("/").slice(2).map(decoded).join(" ");
    document.title = `${waits > 0 ? `(${waits}) ` : ""}${name} · Windlass`;
  }, [path, waits]);
  const out = async () => {
    try {
      await logOut();
    } finally {
      leave();
    }
  };
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to content</a>
    <header class="frame"><span class="brand">Windlass</span>
      <nav aria-label="Screens"><ul>${MENU.map(([to, name]) => html`<li key=${to}><${Link} to=${to} aria-current=${isHere(path, to) ? "page" : undefined}>${name}${to === "/ui/waiting" && waits > 0 && html` <span class="count you">${waits.toLocaleString("en")}</span>`}</${Link}></li>`)}</ul></nav>
      <div class="tools"><${Connection} /><${Theme} /><button onClick=${() => setHelp(true)} aria-label="Keyboard help">?</button><button onClick=${out}>Log out</button></div>
    </header>
    <main id="main" ref=${main} tabindex="-1"><${Guard} key=${path}>${found ? html`<${found.screen} ...${found.names} query=${query} overview=${overview} />` : html`<h1>There is no such screen</h1>`}</${Guard}></main>
    ${help && html`<${Help} close=${() => setHelp(false)} keys=${keys} setKeys=${setKeys} />`}`;
}

/** A screen that cannot be drawn says so, and the others go on. */
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }
  render({ children }, { error }) {
    return error ? html`<h1 tabindex="-1">This screen could not be drawn</h1><${Wrong} error=${error} />` : children;
  }
}

const isHere = (path, to) => (/^\/ui\/sessions\/[^/]+\/tasks\//.test(path) ? to === "/ui/tasks" : isBelow(path, to));
const isBelow = (path, to) => path === to || (to !== "/" && path.startsWith(to + "/"));

function Connection() {
  const [, draw] = useState(0);
  useLayoutEffect(() => {
    const watcher = () => draw((count) => count + 1);
    changes.watchers.add(watcher);
    return () => changes.watchers.delete(watcher);
  }, []);
  useNow();
  const since = changes.lostAt ? ` for ${length(Math.max(0, Math.round((Date.now() - changes.lostAt) / 1_000)) * 1_000_000)}` : "";
  return html`<span role="status" class=${changes.connected ? "link good" : "link bad"}>${changes.connected ? "● live" : `○ not connected${since}`}</span>
    ${changes.isOld && html`<button class="warn" title="The server was updated since this page was loaded." onClick=${() => location.reload()}>Updated: reload</button>`}`;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("windlass-theme") ?? "");
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("windlass-theme", theme);
  }, [theme]);
  return html`<label><span class="hidden">Colours</span><select value=${theme} onChange=${(event) => setTheme(event.target.value)}>
    <option value="">System</option><option value="light">Light</option><option value="dark">Dark</option></select></label>`;
}

/** Whether keys are on: asked at each press, so that a switch holds from the next key on, and in every page of this browser. */
const keysAreOn = () => localStorage.getItem("windlass-keys") !== "off";

/** Moves through rows with the arrows or j and k. Nothing that decides something has a key. */
function useKeys(showHelp) {
  const [on, setOn] = useState(keysAreOn);
  const set = (on) => {
    localStorage.setItem("windlass-keys", on ? "on" : "off");
    setOn(on);
  };
  // Before the screen is painted: nobody presses a key that is lost.
  useLayoutEffect(() => {
    const press = (event) => {
      if (!keysAreOn() || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const rows = [...document.querySelectorAll("main .row[href], main .card a[href]")];
      const here = rows.indexOf(document.activeElement);
      const move = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
      if (move && rows.length > 0 && (here >= 0 || /^[jk]$/.test(event.key))) {
        event.preventDefault();
        /** @type {HTMLElement} */ (rows[Math.min(rows.length - 1, Math.max(0, here + move))]).focus();
      } else if (event.key === "/") {
        const search = document.getElementById("search");
        if (search) {
          event.preventDefault();
          search.focus();
        } else go("/ui/calls");
      } else if (event.key === "?") {
        showHelp();
      } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
        const up = location.pathname.split("/").slice(0, -1).join("/");
        if (location.pathname !== "/") go(screenOf(up) ? up : "/");
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return [on, set];
}

function Help({ close, keys, setKeys }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  const rows = [["j k ↓ ↑", "move through a list"], ["Enter", "open"], ["Esc", "go back, leave a field"], ["/", "search"], ["?", "this help"]];
  return html`<dialog ref=${box} onClose=${close} aria-labelledby="help"><h2 id="help">Keyboard</h2>
    <table class="plain"><tbody>${rows.map(([key, what]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${what}</td></tr>`)}</tbody></table>
    <label class="check"><input type="checkbox" checked=${keys} onChange=${(event) => setKeys(event.target.checked)} /> keys are on</label>
    <p>Approving, denying and running have no keys of their own: reach them with Tab.</p>
    <button onClick=${() => box.current.close()}>Close</button></dialog>`;
}

document.documentElement.dataset.theme = localStorage.getItem("windlass-theme") ?? "";
document.addEventListener("visibilitychange", () => (document.hidden ? changes.close() : changes.open()));
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
