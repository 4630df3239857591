package llm

import "testing"

func TestShape(t *testing.T) {
	for _, c := range []struct{ target, want string }{
		{"/v1/messages", "anthropic messages "},
		{"/v1/messages?beta=true", "anthropic messages "},
		{"/anthropic/v1/messages", "anthropic messages "},
		{"//v1//messages/", "anthropic messages "},
		{"/v1/./x/../messages", "anthropic messages "},
		{"/v1/%6Dessages", "anthropic messages "},
		{"/V1/Messages", "anthropic messages "},
		{"/v1/messages/count_tokens", "anthropic count_tokens "},
		{"/v1/messages/batches", ""},
		{"/v1/complete", "anthropic complete "},
		{"/v2/messages", ""},
		{"/messages", ""},
		{"/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:rawPredict", "anthropic messages claude@1"},
		{"/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict", "anthropic messages claude@1"},
		{"/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", "anthropic count_tokens "},
		{"/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict", "openai chat m"},
		{"/model/anthropic.claude-v2%3A1/invoke", "anthropic messages anthropic.claude-v2:1"},
		{"/v1/chat/completions", "openai chat "},
		{"/chat/completions", "openai chat "},
		{"/api/v1/chat/completions", "openai chat "},
		{"/openai/deployments/GPT-x/chat/completions?api-version=1", "openai chat GPT-x"},
		{"/openai/deployments/e/embeddings", "openai embeddings e"},
		{"/v1beta/openai/chat/completions", "openai chat "},
		{"/v1/projects/p/locations/l/endpoints/openapi/chat/completions", "openai chat "},
		{"/v1/chat/completions/chatcmpl-1", ""},
		{"/v1/completions", "openai completions "},
		{"/v1/responses", "openai responses "},
		{"/openai/v1/responses", "openai responses "},
		{"/backend-api/codex/responses", "openai responses "},
		{"/v1/responses/resp_1/cancel", ""},
		{"/v1/embeddings", "openai embeddings "},
		{"/v1beta/models/gemini-2.5-pro:generateContent", "gemini generate gemini-2.5-pro"},
		{"/v1beta/models/gemini-2.5-pro%3AgenerateContent?key=x", "gemini generate gemini-2.5-pro"},
		{"/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini generate gemini-2.5-pro"},
		{"/v1beta1/projects/p/locations/l/publishers/google/models/G:streamGenerateContent", "gemini generate G"},
		{"/v1beta/models/e:embedContent", "gemini embed e"},
		{"/v1beta/models/e:batchEmbedContents", "gemini embed e"},
		{"/v1beta/models/g:countTokens", "gemini count_tokens g"},
		{"/v1internal:generateContent", "gemini generate v1internal"},
		{"/v1/models", ""},
		{"/v1/files", ""},
		{"/", ""},
		{"", ""},
		{"*", ""},
		{"/%zz/v1/messages", "anthropic messages "},
		{"http://llm.example/v1/messages", "anthropic messages "},
	} {
		got := ""
		if s, ok := shapeOf("POST", c.target); ok {
			got = s.provider + " " + s.api + " " + s.model
		}
		if got != c.want {
			t.Errorf("%s is %q, want %q", c.target, got, c.want)
		}
		if _, ok := shapeOf("GET", c.target); ok {
			t.Errorf("GET %s is a call", c.target)
		}
	}
}
