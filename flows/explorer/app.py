"""The page's server: a handful of addresses on 127.0.0.1, and no way to any file."""

import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from flows.errors import BadInput
from flows.explorer.answers import Answers, Busy, Question, problems, read_question, sentence

LARGEST_QUESTION = 4096
"""Bytes; a real one has a hundred."""
SAFE = {
    # Nothing is loaded from elsewhere, and no other page may show this one.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def explorer() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="lsm explore", docs_url=None, redoc_url=None, openapi_url=None)
    # A page elsewhere whose name was made to lead here is not answered.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    answers = Answers()

    @app.middleware("http")
    async def stay_safe(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await answer(request)
        response.headers.update(SAFE)
        return response

    @app.exception_handler(HTTPException)
    async def say_it(_: Request, error: HTTPException) -> JSONResponse:
        known = "there is only the page itself, and what it asks for"
        return JSONResponse({"sentence": known}, error.status_code)

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(files("flows.explorer").joinpath("page.html").read_text("utf-8"))

    @app.get("/problems")
    def known() -> list[dict[str, Any]]:
        return problems()

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        return await _answered(request, answers.predicted)

    @app.post("/solve")
    async def solve(request: Request) -> Response:
        return await _answered(request, answers.solved)

    return app


async def _answered(request: Request, answer: Callable[[Question], dict[str, Any]]) -> Response:
    try:
        question = read_question(await _body(request))
        return JSONResponse(await run_in_threadpool(answer, question))
    except BadInput as error:
        return JSONResponse(sentence(error), 400)
    except Busy as error:
        return JSONResponse(sentence(error), 503)


async def _body(request: Request) -> Any:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LARGEST_QUESTION:
            raise BadInput(f"a question has at most {LARGEST_QUESTION} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput("a question is JSON: problem, seed and changes") from error
