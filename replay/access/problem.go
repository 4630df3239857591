package access

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Problem is why a request was not answered: problem details (RFC 9457), sent as
// application/problem+json. Detail and Hint hold no text that the client sent but what quotes hold.
type Problem struct {
	Type     string `json:"type"` // urn:custody:problem:NAME
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Hint     string `json:"hint,omitempty"`     // what to do
	Instance string `json:"instance,omitempty"` // path of the request
	// Tenants are those to choose from, where the request names none.
	Tenants []string `json:"tenants,omitempty"`
	// Quota is the one that is used up, and Position the place in the queue, if a sandbox could not be started.
	Quota    string `json:"quota,omitempty"`
	Position int    `json:"position,omitempty"`

	// After is how long to wait, for the Retry-After header. 0: there is no such header.
	After time.Duration `json:"-"`
}

// problemType is the namespace of Problem.Type.
const problemType = "urn:custody:problem:"

// NewProblem returns a problem of the type urn:custody:problem:name.
func NewProblem(status int, name, detail, hint string) *Problem {
	return &Problem{Type: problemType + name, Title: http.StatusText(status), Status: status, Detail: detail, Hint: hint}
}

// Error implements error.
func (p *Problem) Error() string { return fmt.Sprintf("%d: %s", p.Status, p.Detail) }

// reason is the reason in the access event. It has no text of the client, so that equal refusals are equal.
func (p *Problem) reason() string { return p.Type[len(problemType):] }

// Write answers r with the problem.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	out := *p
	out.Instance = r.URL.EscapedPath()
	body, err := json.Marshal(out)
	if err != nil { // of strings and a number
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	p.head(w)
	w.Write(append(body, '\n'))
}

// head writes the status and the headers that do not depend on the form.
func (p *Problem) head(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Length")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="custody"`)
	}
	if p.After > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.After.Seconds()))))
	}
	w.WriteHeader(p.Status)
}
