// Takes one guard away, to see that the tests notice: WITHOUT=NAME .ci/dashboard. A proxy stands before the server and undoes what the guard does.
import { createServer, request } from "node:http";

const TEXT = 'import { h } from "./vendor/preact.mjs";\nexport const text = (value) => [h("span", { dangerouslySetInnerHTML: { __html: String(value) } })];\nexport const Text = ({ value }) => h("div", null, text(String(value ?? "")));\n';
const TYPES = "; require-trusted-types-for 'script'; trusted-types 'none'";

/** @param {string} target the server @param {string} without names of guards with commas: host, site, origin, cookie, key, code, policy, types, frame, text */
export async function proxied(target, without) {
  const off = new Set(without.split(","));
  const kept = { keys: new Map(), cookies: new Map(), logins: new Map() };
  const server = createServer((asked, answer) => {
    const headers = { ...asked.headers };
    if (off.has("host")) headers.host = headers.host?.replace(/^[a-z.]+/, "127.0.0.1");
    if (off.has("site")) delete headers["sec-fetch-site"];
    if (off.has("origin")) delete headers.origin;
    const [cookie, key] = [headers.cookie, headers["x-windlass-page"]];
    if (cookie && key) (kept.keys.set(cookie, key), kept.cookies.set(String(key), cookie));
    if (off.has("key") && cookie) headers["x-windlass-page"] ??= kept.keys.get(cookie);
    if (off.has("cookie") && key) headers.cookie ??= kept.cookies.get(String(key));
    if (off.has("text") && asked.url === "/assets/text.js") delete headers["if-none-match"];
    const parts = [];
    asked.on("data", (part) => parts.push(part));
    asked.on("end", () => {
      const sent = Buffer.concat(parts);
      const known = off.has("code") && asked.url === "/login" && kept.logins.get(String(sent));
      if (known) return answer.writeHead(200, known.headers).end(known.body);
      const through = request(target + asked.url, { method: asked.method, headers }, (got) => {
        const given = { ...got.headers };
        if (off.has("policy")) delete given["content-security-policy"];
        if (off.has("types") && given["content-security-policy"]) given["content-security-policy"] = String(given["content-security-policy"]).replace(TYPES, "");
        if (off.has("frame")) {
          delete given["x-frame-options"];
          given["content-security-policy"] = String(given["content-security-policy"] ?? "").replace("frame-ancestors 'none'; ", "");
        }
        if (off.has("text") && asked.url === "/assets/text.js") {
          delete given["content-length"];
          got.resume();
          return answer.writeHead(200, given).end(TEXT);
        }
        if (off.has("code") && asked.url === "/login" && got.statusCode === 200) {
          const body = [];
          got.on("data", (part) => body.push(part)).on("end", () => kept.logins.set(String(sent), { headers: given, body: Buffer.concat(body) }));
        }
        answer.writeHead(got.statusCode ?? 500, given);
        got.pipe(answer);
      });
      through.on("error", () => answer.destroy());
      answer.on("close", () => through.destroy());
      through.end(sent);
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", () => done(undefined)));
  return { url: `http://127.0.0.1:${/** @type {any} */ (server.address()).port}`, close: () => (server.closeAllConnections(), server.close()) };
}
