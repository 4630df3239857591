package llmapi

// anthropic responds like Anthropic's Messages. Input tokens do not include cached ones.
func (a *answer) anthropic(r reply) {
	usage := a.usage(m{"input_tokens": a.in - a.cached, "cache_read_input_tokens": a.cached, "cache_creation_input_tokens": 0, "output_tokens": a.output})
	message := m{"id": "msg_1", "type": "message", "role": "assistant", "model": a.q.model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil}
	stop := "end_turn"
	if len(r.calls) > 0 {
		stop = "tool_use"
	}
	if !a.q.stream {
		content := []any{m{"type": "text", "text": r.text()}}
		for _, c := range r.calls {
			content = append(content, m{"type": "tool_use", "id": c.id, "name": c.name, "input": m{"command": c.command}})
		}
		message["content"], message["stop_reason"], message["usage"] = content, stop, usage
		a.whole(message)
		return
	}
	message["usage"] = a.usage(m{"input_tokens": a.in - a.cached, "cache_read_input_tokens": a.cached, "cache_creation_input_tokens": 0, "output_tokens": 1})
	a.event("message_start", m{"type": "message_start", "message": message})
	a.block(0, m{"type": "text", "text": ""}, "text_delta", "text", r.spaced())
	for i, c := range r.calls {
		_, pieces := c.arguments()
		a.block(i+1, m{"type": "tool_use", "id": c.id, "name": c.name, "input": m{}}, "input_json_delta", "partial_json", pieces)
	}
	a.event("message_delta", m{"type": "message_delta", "delta": m{"stop_reason": stop, "stop_sequence": nil}, "usage": a.usage(m{"output_tokens": a.output})})
	a.event("message_stop", m{"type": "message_stop"})
}

// block streams one block of content.
func (a *answer) block(index int, begin m, delta, member string, pieces []string) {
	a.event("content_block_start", m{"type": "content_block_start", "index": index, "content_block": begin})
	a.event("ping", m{"type": "ping"})
	for _, piece := range pieces {
		a.event("content_block_delta", m{"type": "content_block_delta", "index": index, "delta": m{"type": delta, member: piece}})
	}
	a.event("content_block_stop", m{"type": "content_block_stop", "index": index})
}

// chat responds like OpenAI's Chat Completions. Prompt tokens include cached ones.
func (a *answer) chat(r reply) {
	usage := a.usage(m{
		"prompt_tokens": a.in, "completion_tokens": a.output, "total_tokens": a.in + a.output,
		"prompt_tokens_details": m{"cached_tokens": a.cached}, "completion_tokens_details": m{"reasoning_tokens": a.thinking},
	})
	stop := "stop"
	if len(r.calls) > 0 {
		stop = "tool_calls"
	}
	if !a.q.stream {
		message := m{"role": "assistant", "content": r.text(), "refusal": nil}
		var calls []any
		for _, c := range r.calls {
			args, _ := c.arguments()
			calls = append(calls, m{"id": c.id, "type": "function", "function": m{"name": c.name, "arguments": args}})
		}
		if calls != nil {
			message["tool_calls"] = calls
		}
		a.whole(m{"id": "chatcmpl-1", "object": "chat.completion", "model": a.q.model, "usage": usage, "choices": []any{m{"index": 0, "message": message, "finish_reason": stop}}})
		return
	}
	chunk := func(delta m, finish any) {
		a.event("", m{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": a.q.model, "choices": []any{m{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	chunk(m{"role": "assistant", "content": ""}, nil)
	for _, piece := range r.spaced() {
		chunk(m{"content": piece}, nil)
	}
	for i, c := range r.calls {
		chunk(m{"tool_calls": []any{m{"index": i, "id": c.id, "type": "function", "function": m{"name": c.name, "arguments": ""}}}}, nil)
		_, pieces := c.arguments()
		for _, piece := range pieces {
			chunk(m{"tool_calls": []any{m{"index": i, "function": m{"arguments": piece}}}}, nil)
		}
	}
	chunk(m{}, stop)
	if a.q.usage {
		a.event("", m{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": a.q.model, "choices": []any{}, "usage": usage})
	}
	a.event("", "[DONE]")
}

// responses responds like OpenAI's Responses.
func (a *answer) responses(r reply) {
	response := func(status string, output []any, usage any) m {
		return m{"id": "resp_1", "object": "response", "status": status, "model": a.q.model, "error": nil, "incomplete_details": nil, "output": output, "usage": usage}
	}
	message := m{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []any{m{"type": "output_text", "text": r.text()}}}
	output := []any{message}
	for _, c := range r.calls {
		args, _ := c.arguments()
		output = append(output, m{"id": "fc_" + c.id, "type": "function_call", "call_id": c.id, "name": c.name, "arguments": args, "status": "completed"})
	}
	done := response("completed", output, a.usage(m{
		"input_tokens": a.in, "output_tokens": a.output, "total_tokens": a.in + a.output,
		"input_tokens_details": m{"cached_tokens": a.cached}, "output_tokens_details": m{"reasoning_tokens": a.thinking},
	}))
	if !a.q.stream {
		a.whole(done)
		return
	}
	event := func(kind string, v m) {
		v["type"], v["sequence_number"] = kind, a.events
		a.event(kind, v)
	}
	event("response.created", m{"response": response("in_progress", []any{}, nil)})
	event("response.output_item.added", m{"output_index": 0, "item": m{"id": "msg_1", "type": "message", "role": "assistant", "content": []any{}}})
	for _, piece := range r.spaced() {
		event("response.output_text.delta", m{"output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": piece})
	}
	event("response.output_item.done", m{"output_index": 0, "item": message})
	for i, c := range r.calls {
		args, pieces := c.arguments()
		event("response.output_item.added", m{"output_index": i + 1, "item": m{"id": "fc_" + c.id, "type": "function_call", "call_id": c.id, "name": c.name, "arguments": ""}})
		for _, piece := range pieces {
			event("response.function_call_arguments.delta", m{"output_index": i + 1, "item_id": "fc_" + c.id, "delta": piece})
		}
		event("response.function_call_arguments.done", m{"output_index": i + 1, "item_id": "fc_" + c.id, "arguments": args})
		event("response.output_item.done", m{"output_index": i + 1, "item": output[i+1]})
	}
	event("response.completed", m{"response": done})
}

// gemini responds like Gemini. Thoughts are not included in the candidates' tokens.
func (a *answer) gemini(r reply) {
	piece := func(parts []any, output int, finish any) m {
		v := m{"candidates": []any{m{"index": 0, "content": m{"role": "model", "parts": parts}}}, "modelVersion": a.q.model}
		if finish != nil {
			object(first(v["candidates"]))["finishReason"] = finish
		}
		usage := m{"promptTokenCount": a.in, "candidatesTokenCount": output, "thoughtsTokenCount": a.thinking, "totalTokenCount": a.in + output + a.thinking}
		if a.cached > 0 {
			usage["cachedContentTokenCount"] = a.cached
		}
		if u := a.usage(usage); u != nil {
			v["usageMetadata"] = u
		}
		return v
	}
	var calls []any
	for _, c := range r.calls {
		calls = append(calls, m{"functionCall": m{"name": c.name, "args": m{"command": c.command}}})
	}
	if !a.q.stream {
		a.whole(piece(append([]any{m{"text": r.text()}}, calls...), a.output-a.thinking, "STOP"))
		return
	}
	for i, text := range r.spaced() {
		a.event("", piece([]any{m{"text": text}}, i+1, nil))
	}
	a.event("", piece(append([]any{m{"text": ""}}, calls...), a.output-a.thinking, "STOP"))
	if a.q.array && !a.broken {
		a.out.Write([]byte("\n]\n")) // the client may have disconnected
	}
}
