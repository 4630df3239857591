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

// Tracker tracks the LLM API calls of one sandbox: their total cost, and the commands in their responses. It is safe for
// concurrent use.
type Tracker struct {
	budget int64
	spent  atomic.Int64
	calls  atomic.Uint64
	asked  asked
	broken broken
}

// NewTracker returns a Tracker. budget bounds the tokens of all calls, input and output; 0: no limit.
func NewTracker(budget int64) *Tracker { return &Tracker{budget: max(budget, 0)} }

// Request has the parts of a request's head that a Tracker needs.
type Request struct {
	Method string
	Host   string
	Path   string // with the query
	Header http.Header
	Flow   string    // id of the flow, for the event
	Began  time.Time // zero: now
}

// Begin begins a call. It returns nil if the request is not an LLM API call: the method and the end of the path decide,
// since any host and path prefix can serve the API.
//
//	anthropic  .../v1/messages, .../v1/complete, .../messages/count_tokens, Vertex AI's
//	           MODEL:rawPredict and :streamRawPredict, Bedrock's /model/MODEL/invoke
//	openai     .../chat/completions, .../responses, .../completions, .../embeddings
//	gemini     MODEL:generateContent, :streamGenerateContent, :embedContent, :batchEmbedContents, :countTokens
func (b *Tracker) Begin(r Request) *Call {
	s, ok := shapeOf(r.Method, r.Path)
	if !ok {
		return nil
	}
	if r.Began.IsZero() {
		r.Began = time.Now()
	}
	return newCall(b, "m"+strconv.FormatUint(b.calls.Add(1), 10), s, r)
}

// Spent returns an error if the budget is used up, and no call may begin. The text is for the client.
func (b *Tracker) Spent() error {
	if spent := b.spent.Load(); b.isOver(spent) {
		return fmt.Errorf("the run's token budget is used up: %d of %d tokens are spent (limits.llm_tokens)", spent, b.budget)
	}
	return nil
}

// Asked returns the id of the call whose response has a tool call for a command, and the id of the tool call, or empty
// strings. The command belongs to a tool call if argv, its end or one of its arguments is a string, or a list of
// strings, in the tool call's arguments, or is a shell command that contains one. The latest tool call counts, and only
// the last 128 are stored.
func (b *Tracker) Asked(argv []string) (call, tool string) { return b.asked.find(argv) }

// spend adds n tokens, and reports whether the budget is used up.
func (b *Tracker) spend(tokens int64) (over bool) {
	spent := b.spent.Add(tokens)
	if spent < 0 { // overflow
		b.spent.Store(math.MaxInt64 / 2)
	}
	return b.isOver(spent)
}

func (b *Tracker) isOver(spent int64) bool { return b.budget > 0 && (spent >= b.budget || spent < 0) }

// broken stores the latest requests that failed or had an incomplete response.
type broken struct {
	mu    sync.Mutex // guards the fields below
	at    map[string]*list.Element
	order list.List // of *failure, latest first
}

type failure struct {
	request string
	ended   time.Time
	count   int // consecutive failures
}

// maxBroken bounds the stored requests. The oldest are evicted.
const maxBroken = 256

// ended stores how a call ended, and returns how many equal ones had failed in a row when it began.
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
