package llm

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Names of the APIs, as in events.
const (
	apiMessages    = "messages"     // anthropic: POST .../v1/messages
	apiComplete    = "complete"     // anthropic: POST .../v1/complete, deprecated
	apiCount       = "count_tokens" // anthropic and gemini: no model runs, nothing is billed
	apiChat        = "chat"         // openai: POST .../chat/completions
	apiResponses   = "responses"    // openai: POST .../responses
	apiCompletions = "completions"  // openai: POST .../completions
	apiEmbeddings  = "embeddings"   // openai: POST .../embeddings
	apiGenerate    = "generate"     // gemini: POST .../models/M:generateContent and :streamGenerateContent
	apiEmbed       = "embed"        // gemini: POST .../models/M:embedContent and :batchEmbedContents
)

const (
	anthropic = "anthropic"
	openai    = "openai"
	gemini    = "gemini"
)

// shape is the information in a request's method and path.
type shape struct {
	provider, api string
	model         string // where the path names it
}

// shapeOf returns the shape of a call, or false. It compares the path like servers that decode it first, and ignore
// extra slashes and case: a request that a server accepts as a call must not pass unrecognized.
//
// Base URLs differ (/v1, /api/v1, /openai/deployments/NAME, ...), so the end of the path decides.
func shapeOf(method, target string) (shape, bool) {
	if method != http.MethodPost {
		return shape{}, false
	}
	p, _, _ := strings.Cut(target, "?")
	p, _, _ = strings.Cut(p, "#")
	if u, err := url.PathUnescape(p); err == nil {
		p = u
	}
	whole := strings.Split(strings.TrimPrefix(path.Clean("/"+p), "/"), "/")
	seg := make([]string, len(whole))
	for i, s := range whole {
		seg[i] = strings.ToLower(s)
	}
	at := func(fromEnd int) string {
		if fromEnd >= len(seg) {
			return ""
		}
		return seg[len(seg)-1-fromEnd]
	}
	last := whole[len(whole)-1]
	if i := strings.LastIndexByte(last, ':'); i >= 0 {
		return verb(last[:i], strings.ToLower(last[i+1:]), at(2))
	}
	s, ok := ending(at)
	switch {
	case ok && s.provider == openai:
		s.model = deployment(seg, whole)
	case ok && strings.HasPrefix(at(0), "invoke"):
		s.model = whole[len(whole)-2]
	}
	return s, ok
}

// ending recognizes the APIs whose name is the end of the path.
func ending(at func(int) string) (shape, bool) {
	switch at(0) {
	case "completions":
		if at(1) == "chat" {
			return shape{provider: openai, api: apiChat}, true
		}
		return shape{provider: openai, api: apiCompletions}, true
	case "responses":
		return shape{provider: openai, api: apiResponses}, true
	case "embeddings":
		return shape{provider: openai, api: apiEmbeddings}, true
	case "messages":
		return shape{provider: anthropic, api: apiMessages}, at(1) == "v1"
	case "complete":
		return shape{provider: anthropic, api: apiComplete}, at(1) == "v1"
	case "count_tokens":
		return shape{provider: anthropic, api: apiCount}, at(1) == "messages"
	case "invoke", "invoke-with-response-stream": // Amazon Bedrock: /model/NAME/invoke
		return shape{provider: anthropic, api: apiMessages}, at(2) == "model"
	}
	return shape{}, false
}

// verb recognizes Google's paths, MODEL:VERB. publisher is the owner of the model in a Vertex AI path.
func verb(model, v, publisher string) (shape, bool) {
	switch v {
	case "generatecontent", "streamgeneratecontent":
		return shape{gemini, apiGenerate, model}, true
	case "embedcontent", "batchembedcontents":
		return shape{gemini, apiEmbed, model}, true
	case "counttokens":
		return shape{gemini, apiCount, model}, true
	case "rawpredict", "streamrawpredict":
		switch {
		case publisher != anthropic:
			return shape{openai, apiChat, model}, true
		case model == "count-tokens":
			return shape{anthropic, apiCount, ""}, true
		}
		return shape{anthropic, apiMessages, model}, true
	}
	return shape{}, false
}

// deployment returns the model in an Azure path.
func deployment(seg, whole []string) string {
	for i, s := range seg {
		if s == "deployments" && i+1 < len(seg) {
			return whole[i+1]
		}
	}
	return ""
}
