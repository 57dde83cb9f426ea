// A form made from a JSON schema, with a switch to JSON. What the form cannot show is edited as JSON.
import { html, useRef, useState } from "./ui.js";
import { ExactNumber, isExact, parse, print } from "./json.js";
import { text } from "./text.js";

const DEPTH_MAX = 6;

/** The schema behind a local `$ref`. */
function resolve(schema, root, depth = 0) {
  if (!schema || typeof schema !== "object" || typeof schema.$ref !== "string" || depth > 8) return schema;
  if (!schema.$ref.startsWith("#/")) return null;
  let found = root;
  for (const part of schema.$ref.slice(2).split("/")) found = found?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
  return resolve(found, root, depth + 1);
}

function typeOf(schema) {
  if (Array.isArray(schema.type)) return schema.type.find((type) => type !== "null");
  return schema.type ?? (schema.properties ? "object" : schema.enum ? "enum" : undefined);
}

/** Whether the form can show all of a schema. */
export function canShow(schema, root = schema, depth = 0) {
  const found = resolve(schema, root);
  if (!found || found === true || typeof found !== "object" || depth > DEPTH_MAX) return false;
  if (found.const !== undefined || Array.isArray(found.enum)) return true;
  const choices = found.oneOf ?? found.anyOf;
  if (choices) return choices.every((choice) => canShow(choice, root, depth + 1));
  switch (typeOf(found)) {
    case "string": case "number": case "integer": case "boolean": return true;
    case "array": return !!found.items && canShow(found.items, root, depth + 1);
    case "object": return Object.values(found.properties ?? {}).every((property) => canShow(property, root, depth + 1));
    default: return false;
  }
}

/** A first value that fits the schema, as far as that is known. */
export function initial(schema, root = schema) {
  const found = resolve(schema, root) ?? {};
  if (found.default !== undefined) return found.default;
  if (found.const !== undefined) return found.const;
  if (Array.isArray(found.enum)) return found.enum[0];
  const choices = found.oneOf ?? found.anyOf;
  if (choices) return initial(choices[0], root);
  switch (typeOf(found)) {
    case "string": return "";
    case "number": case "integer": return found.minimum ?? 0;
    case "boolean": return false;
    case "array": return [];
    case "object": {
      const required = (found.required ?? []).filter((name) => found.properties?.[name]);
      return Object.fromEntries(required.map((name) => [name, initial(found.properties[name], root)]));
    }
    default: return null;
  }
}

/** Whether a value is of the kind of a schema: enough to find the choice that it was made by. */
function fits(schema, root, value) {
  const found = resolve(schema, root) ?? {};
  const is = (other) => print(other) === print(value);
  if (found.const !== undefined) return is(found.const);
  if (Array.isArray(found.enum)) return found.enum.some(is);
  const choices = found.oneOf ?? found.anyOf;
  if (choices) return choices.some((choice) => fits(choice, root, value));
  const isNumber = typeof value === "number" || value instanceof ExactNumber;
  switch (typeOf(found)) {
    case "number": case "integer": return isNumber;
    case "array": return Array.isArray(value);
    case "object": {
      if (value === null || typeof value !== "object" || isNumber || Array.isArray(value)) return false;
      const has = (name) => Object.hasOwn(value, name) && fits(found.properties?.[name] ?? {}, root, value[name]);
      return (found.required ?? []).every(has);
    }
    case undefined: return true;
    default: return typeof value === typeOf(found);
  }
}

/** Edits a value: as a form if the schema allows it, else as JSON. `onEdit` gets the value, or undefined while the JSON is none. */
export function ValueEditor({ schema, value, onEdit, label = "Arguments" }) {
  const shows = !!schema && canShow(schema);
  const [asJson, setAsJson] = useState(!shows);
  const [draft, setDraft] = useState(() => print(value, 2) ?? "");
  const [wrong, setWrong] = useState("");
  // Fields change the value as it is now, and not as it was last drawn: two edits may come between two draws.
  const edited = useRef({ drawn: value, now: value });
  if (edited.current.drawn !== value) edited.current = { drawn: value, now: value };
  const edit = (change) => {
    edited.current.now = change(edited.current.now);
    onEdit(edited.current.now);
  };
  if (!isExact) return html`<p class="wrong">This browser would round large numbers, so nothing can be edited here. Use the command line.</p>`;
  const write = (source) => {
    setDraft(source);
    try {
      edit(() => parse(source));
      setWrong("");
    } catch (error) {
      edit(() => undefined);
      setWrong(`This is not JSON yet: ${error.message}`);
    }
  };
  const toJson = () => {
    setDraft(print(edited.current.now, 2) ?? "");
    setAsJson(true);
  };
  return html`<div class="editor">
    ${shows && html`<div class="tabs" role="group" aria-label="How to edit">
      <button aria-pressed=${!asJson} disabled=${!!wrong} onClick=${() => setAsJson(false)}>Form</button>
      <button aria-pressed=${asJson} onClick=${toJson}>JSON</button>
    </div>`}
    ${asJson
      ? html`<label>${label} as JSON<textarea rows=${Math.min(16, draft.split("\n").length + 1)} spellcheck=${false} value=${draft} onInput=${(event) => write(event.target.value)}></textarea></label>`
      : html`<${Field} schema=${schema} root=${schema} value=${value} edit=${edit} label=${label} required=${true} />`}
    ${wrong && html`<p class="wrong" role="alert">${text(wrong)}</p>`}
  </div>`;
}

let fields = 0;

/** One value. `edit` takes a function from the value as it is to the new one. */
function Field({ schema, root, value, edit, label, required }) {
  const found = resolve(schema, root) ?? {};
  const [id] = useState(() => `field-${(fields += 1)}`);
  const hint = found.description && html`<small id=${id + "-hint"}>${text(String(found.description))}</small>`;
  const about = { id, "aria-describedby": hint ? id + "-hint" : undefined };
  const title = html`${text(String(label))}${!required && html` <small>(optional)</small>`}`;
  const choices = found.oneOf ?? found.anyOf;
  const set = (given) => edit(() => given);
  if (found.const !== undefined) return html`<p>${title}: <code>${text(print(found.const))}</code></p>`;
  if (Array.isArray(found.enum)) {
    const chosen = found.enum.findIndex((choice) => print(choice) === print(value));
    return html`<label for=${id}>${title}</label><select ...${about} value=${chosen} onChange=${(event) => set(found.enum[event.target.value])}>
      ${found.enum.map((choice, place) => html`<option value=${place}>${text(typeof choice === "string" ? choice : print(choice))}</option>`)}</select>${hint}`;
  }
  if (choices) return html`<${Choice} ...${{ choices, root, value, edit, title, id, hint }} />`;
  switch (typeOf(found)) {
    case "boolean":
      return html`<label class="check"><input type="checkbox" ...${about} checked=${value === true} onChange=${(event) => set(event.target.checked)} /> ${title}</label>${hint}`;
    case "number": case "integer": {
      const shown = value instanceof ExactNumber ? value.source : value === undefined || value === null ? "" : String(value);
      const write = (source) => {
        try {
          const number = parse(source);
          set(typeof number === "number" || number instanceof ExactNumber ? number : source);
        } catch {
          set(source);
        }
      };
      return html`<label for=${id}>${title}</label><input ...${about} inputmode="decimal" value=${shown} onInput=${(event) => write(event.target.value)} />${hint}`;
    }
    case "array": return html`<${Items} ...${{ found, root, value, edit, title, hint }} />`;
    case "object": return html`<${Properties} ...${{ found, root, value, edit, title, hint }} />`;
    default: {
      const isLong = (found.maxLength ?? 0) > 200 || String(value ?? "").includes("\n") || String(value ?? "").length > 80;
      const shown = typeof value === "string" ? value : value === undefined ? "" : print(value);
      return html`<label for=${id}>${title}</label>${isLong
        ? html`<textarea ...${about} rows="4" value=${shown} onInput=${(event) => set(event.target.value)}></textarea>`
        : html`<input ...${about} value=${shown} onInput=${(event) => set(event.target.value)} />`}${hint}`;
    }
  }
}

function Choice({ choices, root, value, edit, title, id, hint }) {
  const [chosen, setChosen] = useState(() => Math.max(0, choices.findIndex((choice) => fits(choice, root, value))));
  const name = (choice, place) => resolve(choice, root)?.title ?? resolve(choice, root)?.const ?? typeOf(resolve(choice, root) ?? {}) ?? `choice ${place + 1}`;
  const choose = (place) => {
    setChosen(place);
    edit(() => initial(choices[place], root));
  };
  return html`<fieldset><legend>${title}</legend>${hint}
    <label for=${id}>Kind</label><select id=${id} value=${chosen} onChange=${(event) => choose(Number(event.target.value))}>
      ${choices.map((choice, place) => html`<option value=${place}>${text(String(name(choice, place)))}</option>`)}</select>
    <${Field} key=${chosen} schema=${choices[chosen]} root=${root} value=${value} edit=${edit} label="Value" required=${true} />
  </fieldset>`;
}

const asArray = (value) => (Array.isArray(value) ? value : []);
const asObject = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});

function Items({ found, root, value, edit, title, hint }) {
  const change = (place, change) => edit((all) => asArray(all).map((old, at) => (at === place ? change(old) : old)));
  const remove = (place) => edit((all) => asArray(all).filter((_, at) => at !== place));
  return html`<fieldset><legend>${title}</legend>${hint}
    ${asArray(value).map((item, place) => html`<div class="item"><div><${Field} schema=${found.items} root=${root} value=${item} edit=${(edited) => change(place, edited)} label=${`Item ${place + 1}`} required=${true} /></div>
      <button aria-label=${`Remove item ${place + 1}`} onClick=${() => remove(place)}>✕</button></div>`)}
    <button onClick=${() => edit((all) => [...asArray(all), initial(found.items, root)])}>Add item</button>
  </fieldset>`;
}

function Properties({ found, root, value, edit, title, hint }) {
  const object = asObject(value);
  const required = found.required ?? [];
  const names = Object.keys(found.properties ?? {});
  const change = (name, change) => edit((all) => ({ ...asObject(all), [name]: change(asObject(all)[name]) }));
  const drop = (name) => edit((all) => Object.fromEntries(Object.entries(asObject(all)).filter(([key]) => key !== name)));
  const others = Object.keys(object).filter((name) => !names.includes(name));
  return html`<fieldset><legend>${title}</legend>${hint}
    ${names.map((name) => Object.hasOwn(object, name)
      ? html`<div class="item" key=${name}><div><${Field} schema=${found.properties[name]} root=${root} value=${object[name]} edit=${(edited) => change(name, edited)} label=${name} required=${required.includes(name)} /></div>
          ${!required.includes(name) && html`<button aria-label=${`Leave out ${name}`} onClick=${() => drop(name)}>✕</button>`}</div>`
      : html`<div key=${name}><button onClick=${() => change(name, () => initial(found.properties[name], root))}>Add ${text(name)}</button></div>`)}
    ${others.length > 0 && html`<p class="quiet">Also given, and kept: ${others.map((name) => html`<code>${text(name)}</code> `)}</p>`}
    ${names.length === 0 && others.length === 0 && html`<p class="quiet">It takes no arguments.</p>`}
  </fieldset>`;
}
