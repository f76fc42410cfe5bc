"""All routes, below whatever address family: method, path, handler (reference, section 2)."""

from starlette.routing import Route, Router

from assistant_runner.service.core import Core
from assistant_runner.service.gateway import Endpoint, unknown_route
from assistant_runner.service.routes import assistants, files, models, runs, threads, vector_stores
from assistant_runner.service.web import Handler

_RUN = "/threads/{thread_id}/runs/{run_id}"
_STORE = "/vector_stores/{vector_store_id}"

TABLE: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/threads/runs", runs.create_with_thread),
    ("POST", "/threads/{thread_id}/runs", runs.create),
    ("GET", _RUN, runs.retrieve),
    ("POST", f"{_RUN}/submit_tool_outputs", runs.submit),
    ("GET", "/threads/{thread_id}/messages", threads.list_messages),
    ("POST", "/threads/{thread_id}/messages", threads.create_message),
    ("POST", "/threads", threads.create),
    ("GET", "/threads", threads.list_all),
    ("GET", "/threads/{thread_id}", threads.retrieve),
    ("POST", "/threads/{thread_id}", threads.modify),
    ("DELETE", "/threads/{thread_id}", threads.delete),
    ("GET", "/threads/{thread_id}/messages/{message_id}", threads.retrieve_message),
    ("POST", "/threads/{thread_id}/messages/{message_id}", threads.modify_message),
    ("DELETE", "/threads/{thread_id}/messages/{message_id}", threads.delete_message),
    ("GET", "/threads/{thread_id}/runs", runs.list_all),
    ("POST", _RUN, runs.modify),
    ("POST", f"{_RUN}/cancel", runs.cancel),
    ("GET", f"{_RUN}/steps", runs.list_steps),
    ("GET", f"{_RUN}/steps/{{step_id}}", runs.retrieve_step),
    ("GET", "/assistants", assistants.list_all),
    ("POST", "/assistants", assistants.create),
    ("GET", "/assistants/{assistant_id}", assistants.retrieve),
    ("POST", "/assistants/{assistant_id}", assistants.modify),
    ("DELETE", "/assistants/{assistant_id}", assistants.delete),
    ("GET", "/files", files.list_all),
    ("POST", "/files", files.create),
    ("GET", "/files/{file_id}", files.retrieve),
    ("DELETE", "/files/{file_id}", files.delete),
    ("GET", "/files/{file_id}/content", files.content),
    ("GET", "/vector_stores", vector_stores.list_all),
    ("POST", "/vector_stores", vector_stores.create),
    ("GET", _STORE, vector_stores.retrieve),
    ("POST", _STORE, vector_stores.modify),
    ("DELETE", _STORE, vector_stores.delete),
    ("POST", f"{_STORE}/search", vector_stores.search),
    ("GET", f"{_STORE}/files", vector_stores.list_files),
    ("POST", f"{_STORE}/files", vector_stores.add_file),
    ("GET", f"{_STORE}/files/{{file_id}}", vector_stores.retrieve_file),
    ("POST", f"{_STORE}/files/{{file_id}}", vector_stores.modify_file),
    ("DELETE", f"{_STORE}/files/{{file_id}}", vector_stores.remove_file),
    ("GET", f"{_STORE}/files/{{file_id}}/content", vector_stores.file_content),
    ("POST", f"{_STORE}/file_batches", vector_stores.create_batch),
    ("GET", f"{_STORE}/file_batches/{{batch_id}}", vector_stores.retrieve_batch),
    ("POST", f"{_STORE}/file_batches/{{batch_id}}/cancel", vector_stores.cancel_batch),
    ("GET", f"{_STORE}/file_batches/{{batch_id}}/files", vector_stores.list_batch_files),
    ("GET", "/models", models.list_all),
    ("GET", "/models/{model:path}", models.retrieve),
    ("DELETE", "/models/{model:path}", models.delete),
)

_CREATES = frozenset(
    {
        assistants.create,
        files.create,
        threads.create,
        threads.create_message,
        runs.create,
        runs.create_with_thread,
        runs.submit,
        vector_stores.create,
        vector_stores.add_file,
        vector_stores.create_batch,
    }
)
"""What honours an Idempotency-Key."""


def build_router(core: Core) -> Router:
    routes = [
        Route(
            path,
            Endpoint(core, handler, streamed=handler is files.create, creates=handler in _CREATES),
            methods=[method],
        )
        for method, path, handler in TABLE
    ]
    return Router(routes, redirect_slashes=False, default=unknown_route)
