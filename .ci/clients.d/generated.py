"""A client that openapi-python-client generated from docs/openapi.json drives a batch."""
import os

from windlass_api import AuthenticatedClient
from windlass_api.api.batches import get_batch, submit_batch
from windlass_api.api.tools import list_tools
from windlass_api.models import Batch, BatchRequest, CallRequest, ArgsShapeType0 as Args, PageOfTool

client = AuthenticatedClient(base_url=os.environ["WINDLASS_URL"], token=os.environ["WINDLASS_TOKEN"])
tools = list_tools.sync(client=client)
assert isinstance(tools, PageOfTool), tools
assert "add" in [tool.name for tool in tools.items], tools
args = Args.from_dict({"a": 19, "b": 23})
batch = BatchRequest(key="generated", calls=[CallRequest(id="c1", tool="add", args=args)])
answer = submit_batch.sync("generated-python", client=client, body=batch)
assert isinstance(answer, Batch), answer
[call] = answer.calls
assert call.state == "succeeded" and call.outcome.value == {"result": 42}, call
again = get_batch.sync("generated-python", "generated", client=client)
assert isinstance(again, Batch) and again.calls[0].call == call.call, again
print("openapi-python-client: the batch has", call.outcome.value)
