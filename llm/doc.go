// Package llm observes LLM API calls: the request and the model, the cost, and the tool calls in the response.
//
// A Tracker belongs to one sandbox. It recognizes a call by the shape of its request (see Begin), for any host, since
// any host can serve these APIs. A Call receives the bytes of request and response as they pass, and never delays,
// changes or keeps them. If it cannot parse them, or they are too long, the event's field incomplete has the reason, and
// the exchange continues.
//
//	request  -> decode -> sieve ----------> model, tools on offer
//	answer   -> decode -> sieve ----------> JSON: one text, or an array of them
//	                   -> events -> sieve -> server-sent events: one text each
//	                                   +--> tokens -> budget
//	                                   +--> tool calls -> Asked
//
// Token counts are those that the provider reports, converted to common definitions (see audit.LLM). They are never
// estimated: if the provider reports none, the event has a note. Only the budget, which must be enforced in any case, is
// then charged the maximum that the call can have cost if its content is text: one token per byte.
//
// WebSockets (realtime APIs), batches, and responses that are fetched later (background responses) are not observed as
// calls. Requests that count tokens cost nothing, and are recorded without tokens. Amazon's event streams are not
// supported.
package llm
