package llm

import (
	"container/list"
	"context"
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
	budget  int64
	account Account // nil: none
	spent   atomic.Int64
	calls   atomic.Uint64
	asked   asked
	broken  broken
}

// Account is a budget that several sandboxes share. It is safe for concurrent use.
type Account interface {
	// Charge adds tokens that a call has used. It does not block.
	Charge(tokens int64)
	// Spent returns an error if the budget is known to be used up. It does not block. The text is for the client.
	Spent() error
	// Ask returns an error if the budget is used up, by what all sandboxes have used until now.
	Ask(ctx context.Context) error
}

// NewTracker returns a Tracker. budget bounds the tokens of all calls, input and output; 0: no limit. account is charged for them, too;
// nil: none is.
func NewTracker(budget int64, account Account) *Tracker {
	return &Tracker{budget: max(budget, 0), account: account}
}

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

// Admit returns an error if no call may begin, because the budget or the account is used up. The text is for the client.
func (b *Tracker) Admit(ctx context.Context) error {
	if err := b.Spent(); err != nil || b.account == nil {
		return err
	}
	return b.account.Ask(ctx)
}

// Spent returns an error if the budget is used up, or the account is known to be. The text is for the client.
func (b *Tracker) Spent() error {
	if spent := b.spent.Load(); b.isOver(spent) {
		return fmt.Errorf("the run's token budget is used up: %d of %d tokens are spent (limits.llm_tokens)", spent, b.budget)
	}
	if b.account != nil {
		return b.account.Spent()
	}
	return nil
}

// Asked returns the id of the call whose response has a tool call for a command, and the id of the tool call, or empty
// strings. The command belongs to a tool call if argv, its end or one of its arguments is a string, or a list of
// strings, in the tool call's arguments, or is a shell command that contains one. The latest tool call counts, and only
// the last 128 are stored.
func (b *Tracker) Asked(argv []string) (call, tool string) { return b.asked.find(argv) }

// spend adds n tokens, and reports whether the budget or the account is used up.
func (b *Tracker) spend(tokens int64) (over bool) {
	spent := b.spent.Add(tokens)
	if spent < 0 { // overflow
		b.spent.Store(math.MaxInt64 / 2)
	}
	if b.account != nil && tokens > 0 {
		b.account.Charge(tokens)
	}
	return b.isOver(spent) || b.account != nil && b.account.Spent() != nil
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
