"""Programs that other people build on: they must not look for anything but the server."""

import os

os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    OPENAI_AGENTS_DISABLE_TRACING="1",
    LANGSMITH_TRACING="false",
    DO_NOT_TRACK="1",
)
