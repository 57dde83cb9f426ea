"""What the server scenarios of the conformance suite ask for: tools, prompts and resources, in both eras of the protocol. `everything_server.py` carries the messages.

A tool that asks or reports takes a `Peer`, which is one request of a client."""
import hashlib
import hmac
import json
import time

VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]
MODERN = "2026-07-28"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
# Between two reports of a tool: whoever stands between may pass on ten of them a second.
REPORT_SECONDS = 0.11


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


def text(content):
    return {"type": "text", "text": content}


def result(*blocks):
    return {"content": list(blocks)}


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING = {"type": "string"}


def form(message, **properties):
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema(**properties)}}


def sampling(prompt, tokens=100):
    return {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": text(prompt)}], "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}
NAME = {"user_name": form("What is your name?", name=STRING)}


# What asks in the middle of a call, before 2026-07-28.
def ask_sampling(peer, args):
    said = peer.ask("sampling/createMessage", sampling(args.get("prompt", ""))["params"])
    return result(text(f"LLM response: {json.dumps(said)}"))


def ask_form(message, properties, required=()):
    def tool(peer, args):
        wanted = {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
        said = peer.ask("elicitation/create", {"message": args.get("message", message), "requestedSchema": wanted})
        return result(text(f"User response: action={said.get('action')}, content={json.dumps(said.get('content'))}"))

    return tool


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(["First", "Second", "Third"], 1)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


# What asks by its result, since 2026-07-28.
def asks(requests, state=None):
    return {"resultType": "input_required", "inputRequests": requests, **({"requestState": sealed(state)} if state else {})}


def sealed(state):
    return f"{state}.{hmac.new(b'fixture', state.encode(), hashlib.sha256).hexdigest()}"


def opened(given):
    state = (given or "").rpartition(".")[0]
    if not hmac.compare_digest(sealed(state), given or ""):
        raise Refused(-32602, "the state was changed")
    return state


def answers(params, *keys):
    """The answers to these questions; none if one of them is missing."""
    given = params.get("inputResponses")
    if not isinstance(given, dict) or not all(isinstance(given.get(key), dict) for key in keys):
        return None
    return [given[key] for key in keys]


def asking(requests, state=None):
    def tool(peer, args):
        said = answers(peer.params, *requests)
        if said is None:
            return asks(requests, state)
        if state and opened(peer.params.get("requestState")) != state:
            raise Refused(-32602, "the state is another one")
        return result(text(f"{'state-ok: ' if state else ''}{json.dumps(said)}"))

    return tool


def multi_round(peer, args):
    first, second = {"step1": form("Step 1: What is your name?", name=STRING)}, {"step2": form("Step 2: What is your favorite color?", color=STRING)}
    if peer.params.get("requestState") is None:
        return asks(first, "round 1")
    state = opened(peer.params["requestState"])
    if state == "round 1" and answers(peer.params, "step1"):
        return asks(second, "round 2")
    if state == "round 2" and answers(peer.params, "step2"):
        return result(text(f"done: {json.dumps(peer.params['inputResponses'])}"))
    raise Refused(-32602, "there is no such round")


def capable(peer, args):
    """Asks only for what the client can give."""
    if answers(peer.params, "question"):
        return result(text("answered"))
    wanted = {"elicitation": form("Go on?", ok={"type": "boolean"}), "sampling": sampling("Say something.")}
    can = [request for name, request in wanted.items() if name in peer.capabilities]
    return asks({"question": can[0]}) if can else result(text("nothing can be asked"))


def needs_sampling(peer, args):
    if "sampling" not in peer.capabilities:
        raise Refused(-32021, "this needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return result(text("sampling is there"))


def progress(peer, args):
    for number in (0, 50, 100):
        peer.report(number, 100)
        time.sleep(REPORT_SECONDS)
    return result(text("reported"))


def logging(peer, args):
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        peer.log(message)
        time.sleep(0.05)
    return result(text("logged"))


def failing(peer, args):
    return {**result(text("This tool intentionally returns an error for testing")), "isError": True}


def always(*blocks):
    return lambda peer, args: result(*blocks)


def resource(uri, kind, content):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": content}}


ADDRESS = {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}
CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
MIXED = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
BOTH = {
    "test_simple_text": always(text("This is a simple text response for testing.")),
    "test_image_content": always(IMAGE),
    "test_audio_content": always({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": always(resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    "test_multiple_content_types": always(text("Multiple content types test:"), IMAGE, MIXED),
    "test_error_handling": failing,
    "test_tool_with_progress": progress,
    "json_schema_2020_12_tool": always(text("ok")),
}
OLDER = {
    "test_tool_with_logging": logging,
    "test_sampling": ask_sampling,
    "test_elicitation": ask_form("", {"username": STRING, "email": STRING}, ["username", "email"]),
    "test_elicitation_sep1034_defaults": ask_form("Check these.", DEFAULTS),
    "test_elicitation_sep1330_enums": ask_form("Choose.", ENUMS),
}
NEWER = {
    "test_input_required_result_elicitation": asking(NAME),
    "test_input_required_result_sampling": asking({"capital_question": sampling("What is the capital of France?")}),
    "test_input_required_result_list_roots": asking({"client_roots": ROOTS}),
    "test_input_required_result_request_state": asking({"confirm": form("Please confirm", ok={"type": "boolean"})}, "asked"),
    "test_input_required_result_tampered_state": asking({"confirm": form("Please confirm", ok={"type": "boolean"})}, "sealed"),
    "test_input_required_result_multiple_inputs": asking({**NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}, "all"),
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_capabilities": capable,
    "test_streaming_elicitation": asking(NAME),
    "test_logging_tool": logging,
    "test_missing_capability": needs_sampling,
}
INPUTS = {
    "json_schema_2020_12_tool": CONTACT,
    "test_sampling": schema(prompt=STRING),
    "test_elicitation": schema(message=STRING),
}


def argument(name):
    return {"name": name, "description": f"The argument {name}", "required": True}


PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": [argument("arg1"), argument("arg2")],
    "test_prompt_with_embedded_resource": [argument("resourceUri")],
    "test_prompt_with_image": [],
}
NEWER_PROMPTS = {"test_input_required_result_prompt": []}


def prompt(peer, params):
    name, args = params["name"], params.get("arguments") or {}
    if name == "test_simple_prompt":
        return messages(text("This is a simple prompt for testing."))
    if name == "test_prompt_with_arguments":
        return messages(text(f"Prompt with arguments: arg1='{args.get('arg1')}', arg2='{args.get('arg2')}'"))
    if name == "test_prompt_with_embedded_resource":
        embedded = resource(args.get("resourceUri", ""), "text/plain", "Embedded resource content for testing.")
        return messages(embedded, text("Please process the embedded resource above."))
    if name == "test_prompt_with_image":
        return messages(IMAGE, text("Please analyze the image above."))
    if name == "test_input_required_result_prompt" and peer.is_modern:
        said = answers(params, "user_context")
        return messages(text(json.dumps(said))) if said else asks({"user_context": form("What context should the prompt use?", context=STRING)})
    raise Refused(-32602, f"there is no prompt {name!r}")


def messages(*blocks):
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}


def read(peer, params):
    uri = params["uri"]
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        data = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
    raise Refused(-32602 if peer.is_modern else -32002, "Resource not found", {"uri": uri})


def call(peer, params):
    tool = {**BOTH, **(NEWER if peer.is_modern else OLDER)}.get(params["name"])
    if tool is None:
        raise Refused(-32602, f"there is no tool {params['name']!r}")
    return tool(peer, params.get("arguments") or {})


def listed_tools(peer, params):
    tools = {**BOTH, **(NEWER if peer.is_modern else OLDER)}
    return {"tools": [{"name": name, "description": f"The fixture {name}", "inputSchema": INPUTS.get(name, {"type": "object"})} for name in sorted(tools)]}


def listed_prompts(peer, params):
    prompts = {**PROMPTS, **(NEWER_PROMPTS if peer.is_modern else {})}
    return {"prompts": [{"name": name, "description": f"The fixture {name}", "arguments": args} for name, args in sorted(prompts.items())]}


def listed_resources(peer, params):
    return {"resources": [{"uri": uri, "name": uri, "description": "A fixture", "mimeType": has["mimeType"]} for uri, has in sorted(RESOURCES.items())]}


def listed_templates(peer, params):
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "A fixture", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


def completed(peer, params):
    begun = params.get("argument", {}).get("value", "")
    values = [word for word in ("paris", "park", "party", "test") if word.startswith(begun)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


CAPABILITIES = {"tools": {}, "prompts": {}, "completions": {}}
INFO = {"name": "everything", "version": "1"}


def initialized(peer, params):
    version = params.get("protocolVersion")
    capabilities = {**CAPABILITIES, "resources": {"subscribe": True}, "logging": {}}
    return {"protocolVersion": version if version in VERSIONS else VERSIONS[0], "capabilities": capabilities, "serverInfo": INFO}


def discovered(peer, params):
    return {"supportedVersions": [MODERN], "capabilities": {**CAPABILITIES, "resources": {}}}


def nothing(peer, params):
    return {}


METHODS = {
    "tools/list": listed_tools,
    "tools/call": call,
    "prompts/list": listed_prompts,
    "prompts/get": prompt,
    "resources/list": listed_resources,
    "resources/templates/list": listed_templates,
    "resources/read": read,
    "completion/complete": completed,
}
OLDER_METHODS = {
    "initialize": initialized,
    "ping": nothing,
    "logging/setLevel": nothing,
    "resources/subscribe": nothing,
    "resources/unsubscribe": nothing,
}
CACHED = {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}


def answer(peer, method, params):
    """The result of a request, or its error as an exception."""
    methods = {**METHODS, **({"server/discover": discovered} if peer.is_modern else OLDER_METHODS)}
    if method not in methods:
        raise Refused(-32601, f"there is no method {method!r}")
    given = methods[method](peer, params)
    if peer.is_modern:
        given.setdefault("resultType", "complete")
        given["_meta"] = {"io.modelcontextprotocol/serverInfo": INFO}
        if method in CACHED:
            given.update(ttlMs=0, cacheScope="private")
    return given
