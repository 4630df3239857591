#!/usr/bin/env python3
"""An agent over Anthropic's Messages API, streamed. It has no key, only a placeholder.

usage: agent_anthropic.py PROMPT
environment: ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, MODEL
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com").rstrip("/")
KEY = os.environ["ANTHROPIC_API_KEY"]
MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
TOOLS = [{
    "name": "bash",
    "description": "Run a command in a shell and return what it prints.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}]


def events(messages):
    """Asks the model and yields the events of its answer as they arrive."""
    body = {"model": MODEL, "max_tokens": 4096, "stream": True, "tools": TOOLS, "messages": messages}
    request = urllib.request.Request(BASE + "/v1/messages", json.dumps(body).encode(), {
        "content-type": "application/json", "x-api-key": KEY, "anthropic-version": "2023-06-01",
    })
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])
    except urllib.error.HTTPError as err:
        sys.exit(f"agent: the model answered {err.code}: {err.read().decode(errors='replace')}")


def ask(messages):
    """Returns the model's turn as blocks of content, why it stopped, and what it cost."""
    blocks, pieces, stop, usage = [], {}, None, {}
    for event in events(messages):
        kind = event["type"]
        if kind == "message_start":
            usage.update(event["message"]["usage"])
        elif kind == "content_block_start":
            blocks.append(event["content_block"])
        elif kind == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                blocks[event["index"]]["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
        elif kind == "message_delta":
            stop = event["delta"]["stop_reason"]
            usage.update(event["usage"])
        elif kind == "error":
            sys.exit(f"agent: the model broke off: {event['error']['message']}")
    if stop is None:
        sys.exit("agent: the model's answer is not whole")
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text or "{}")
    return blocks, stop, usage


def run(command):
    """Runs a command as the model wants it and returns what it printed."""
    print(f"$ {command}", flush=True)
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.stdout.decode(errors="replace") + (f"\nexit status {done.returncode}" if done.returncode else "")


def main():
    messages, total = [{"role": "user", "content": " ".join(sys.argv[1:])}], [0, 0]
    while True:
        blocks, stop, usage = ask(messages)
        total[0] += usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0) + (usage.get("cache_creation_input_tokens") or 0)
        total[1] += usage["output_tokens"]
        messages.append({"role": "assistant", "content": blocks})
        if stop != "tool_use":
            break
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": b["id"], "content": run(b["input"]["command"])}
            for b in blocks if b["type"] == "tool_use"
        ]})
    print("".join(b["text"] for b in blocks if b["type"] == "text"))
    print(f"tokens: {total[0]} in, {total[1]} out")


main()
