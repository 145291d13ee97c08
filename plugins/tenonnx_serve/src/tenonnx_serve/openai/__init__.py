"""OpenAI's API for language models: chats, completions, responses, embeddings, transcriptions.

A request's way; what stands in brackets is a module::

    body ─▶ [messages] its fields are checked by their types
              ▼
            [requests] tokens and options, in a thread; [tools] and [forms] become a grammar
              ▼
            [generations] admits it; [engine_thread] generates all texts together, in [steps]
              ▼
            [choices] text of tokens, stop strings, [tools] that are called
              ▼
            [answers], [response_answers] one JSON object, or chunks, with [logprobs]
              ▼
            [routes] sends them, whole or as events

A request of the Responses API becomes a chat in [responses]. [texts] answers with tokens, and with
embeddings of a [text_encoder] by [pooling]; [transcriptions] with texts of sounds.

The server's own modules import nothing of this but [errors] and [routes] until a language model is
asked for: tokenizers, templates and guidance belong to tenonnx-generate.
"""
