// Package llm reads LLM API calls as they pass: what was asked of
// which model, what it cost, and which tools it wants called.
//
// A Book belongs to one sandbox. It knows a call by the shape of its request
// (see Begin), whatever the host is, since anyone can serve these APIs. A Call is fed the
// bytes of request and answer as they pass, and never holds them up, changes or
// keeps them: what it does not understand, or finds too long, is said in the
// event's field incomplete, and the exchange goes on.
//
//	request  -> decode -> sieve ----------> model, tools on offer
//	answer   -> decode -> sieve ----------> JSON: one text, or an array of them
//	                   -> events -> sieve -> server-sent events: one text each
//	                                   +--> tokens -> budget
//	                                   +--> tool calls -> Asked
//
// Figures are those that the provider reports, brought to one meaning (see
// audit.LLM). None is made up: where the provider sends none, the event has a note of it. Only the
// budget, which has to hold all the same, is then charged what the call can
// have cost at most if its content is text: one token a byte.
//
// Not seen as calls are WebSockets (realtime APIs), batches, answers fetched later (background
// responses), and counting tokens costs nothing by its nature and is recorded with none.
// Amazon's event streams are not read.
package llm
