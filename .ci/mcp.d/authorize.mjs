// The conformance suite sends no tokens: its requests to the server under test get one here.
const { WINDLASS_URL, WINDLASS_TOKEN } = process.env;
const plain = globalThis.fetch;
globalThis.fetch = (input, init = {}) => {
  const url = input instanceof Request ? input.url : String(input);
  if (!url.startsWith(WINDLASS_URL)) return plain(input, init);
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("authorization", `Bearer ${WINDLASS_TOKEN}`);
  return plain(input, { ...init, headers });
};
