package llm

import (
	"container/list"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Book keeps the calls of one sandbox: what they cost together, and which
// commands they asked for. It is safe for concurrent use.
type Book struct {
	budget int64
	spent  atomic.Int64
	calls  atomic.Uint64
	asked  asked
	broken broken
}

// NewBook returns one. budget is how many tokens the calls may cost together, input and output; 0: no bound.
func NewBook(budget int64) *Book { return &Book{budget: max(budget, 0)} }

// Request is the head of a request, as far as it matters.
type Request struct {
	Method string
	Host   string
	Path   string // with the query
	Header http.Header
	Flow   string    // id of the flow, for the event
	Began  time.Time // zero: now
}

// Begin begins a call, or returns nil if the request is none: its method and the end of its path decide,
// since a model can be behind any host and prefix.
//
//	anthropic  .../v1/messages, .../v1/complete, .../messages/count_tokens, Vertex AI's
//	           MODEL:rawPredict and :streamRawPredict, Bedrock's /model/MODEL/invoke
//	openai     .../chat/completions, .../responses, .../completions, .../embeddings
//	gemini     MODEL:generateContent, :streamGenerateContent, :embedContent, :batchEmbedContents, :countTokens
func (b *Book) Begin(r Request) *Call {
	s, ok := shapeOf(r.Method, r.Path)
	if !ok {
		return nil
	}
	if r.Began.IsZero() {
		r.Began = time.Now()
	}
	return newCall(b, "m"+strconv.FormatUint(b.calls.Add(1), 10), s, r)
}

// Spent returns an error once the budget is used up: no call may begin. Its words are for the caller.
func (b *Book) Spent() error {
	if spent := b.spent.Load(); b.isOver(spent) {
		return fmt.Errorf("the run's token budget is used up: %d of %d tokens are spent (limits.llm_tokens)", spent, b.budget)
	}
	return nil
}

// Asked returns the id of the call whose tool call asked for a command, and the tool call's, or
// empty strings. They belong together if argv, its end or one of its arguments is a
// string of the tool call's arguments, or a list of strings in them, or is for a shell and contains one; the
// latest tool call counts, and only the last 128 are remembered.
func (b *Book) Asked(argv []string) (call, tool string) { return b.asked.find(argv) }

// spend adds to what is spent, and reports whether the budget is used up.
func (b *Book) spend(tokens int64) (over bool) {
	spent := b.spent.Add(tokens)
	if spent < 0 { // more than can be counted
		b.spent.Store(math.MaxInt64 / 2)
	}
	return b.isOver(spent)
}

func (b *Book) isOver(spent int64) bool { return b.budget > 0 && (spent >= b.budget || spent < 0) }

// broken remembers the latest requests that were answered with an error, or not to the end.
type broken struct {
	mu    sync.Mutex // guards what follows
	at    map[string]*list.Element
	order list.List // of *failure, the latest first
}

type failure struct {
	request string
	ended   time.Time
	count   int // in a row
}

// maxBroken bounds them. The oldest are forgotten.
const maxBroken = 256

// ended notes how a call ended, and returns how many equal ones had failed in a row when it began.
func (f *broken) ended(request string, began time.Time, failed bool) (before int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.at[request]
	var last failure
	if e != nil {
		last = *e.Value.(*failure)
		f.order.Remove(e)
		delete(f.at, request)
	}
	if e != nil && !last.ended.After(began) {
		before = last.count
	}
	if !failed {
		return before
	}
	if f.at == nil {
		f.at = map[string]*list.Element{}
	}
	f.at[request] = f.order.PushFront(&failure{request: request, ended: time.Now(), count: last.count + 1})
	if f.order.Len() > maxBroken {
		oldest := f.order.Back()
		f.order.Remove(oldest)
		delete(f.at, oldest.Value.(*failure).request)
	}
	return before
}
