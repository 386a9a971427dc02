"""The engine over HTTP: routes of the OpenAI API, streaming, metrics, health and an orderly end."""
