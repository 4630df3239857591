#!/usr/bin/env python3
"""An agent over OpenAI's Chat Completions API, or a compatible one. It has no key, only a placeholder.

usage: agent_openai.py PROMPT
environment: OPENAI_BASE_URL (with /v1), OPENAI_API_KEY, MODEL
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
KEY = os.environ["OPENAI_API_KEY"]
MODEL = os.environ.get("MODEL", "gpt-5")
TOOLS = [{"type": "function", "function": {
    "name": "bash",
    "description": "Run a command in a shell and return what it prints.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}}]


def ask(messages):
    """Returns the model's message and what it cost."""
    body = {"model": MODEL, "tools": TOOLS, "messages": messages}
    request = urllib.request.Request(BASE + "/chat/completions", json.dumps(body).encode(), {
        "content-type": "application/json", "authorization": "Bearer " + KEY,
    })
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            got = json.load(answer)
    except urllib.error.HTTPError as err:
        sys.exit(f"agent: the model answered {err.code}: {err.read().decode(errors='replace')}")
    return got["choices"][0]["message"], got["usage"]


def run(command):
    """Runs a command as the model wants it and returns what it printed."""
    print(f"$ {command}", flush=True)
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.stdout.decode(errors="replace") + (f"\nexit status {done.returncode}" if done.returncode else "")


def main():
    messages, total = [{"role": "user", "content": " ".join(sys.argv[1:])}], [0, 0]
    while True:
        message, usage = ask(messages)
        total[0] += usage["prompt_tokens"]
        total[1] += usage["completion_tokens"]
        messages.append(message)
        if not message.get("tool_calls"):
            break
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": run(command)})
    print(message["content"])
    print(f"tokens: {total[0]} in, {total[1]} out")


main()
