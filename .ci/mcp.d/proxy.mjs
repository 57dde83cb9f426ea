// The conformance suite sends no tokens: this passes its requests on with one, and leaves everything else as it is.
import http from "node:http";

const [port, target, token] = process.argv.slice(2);
const { hostname, port: targetPort } = new URL(target);

http
  .createServer((asked, answer) => {
    const headers = [...asked.rawHeaders, "Authorization", `Bearer ${token}`];
    const onward = http.request({ hostname, port: targetPort, method: asked.method, path: asked.url, headers, setHost: false });
    onward.on("response", (response) => {
      answer.writeHead(response.statusCode, response.rawHeaders);
      answer.flushHeaders();
      response.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    asked.pipe(onward);
  })
  .listen(Number(port), "127.0.0.1", () => console.log("ready"));
