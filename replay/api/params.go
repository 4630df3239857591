package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"

	"github.com/custody-project/custody/replay/access"
)

const (
	// maxValue bounds a parameter, in bytes.
	maxValue = 4096
	// maxPage bounds the items of one response, and fewItems is the default.
	maxPage, fewItems = 5000, 200
)

// request is a request with valid parameters: only those of its route, each at most once.
type request struct {
	*http.Request
	route *route
	query url.Values
	who   access.Principal
}

// parse checks the query. The Gate checks the parameter tenant.
func parse(r *http.Request, rt *route) (*request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("encode parameters as URLs have them", "the query cannot be read")
	}
	for name, values := range query {
		switch {
		case name != "tenant" && !slices.Contains(rt.params, name):
			return nil, bad("this route has "+list(append(slices.Clone(rt.params), "tenant")), "%.60q is no parameter here", name)
		case len(values) > 1:
			return nil, bad("give it once; several kinds or runs are one list with commas", "the parameter %s comes %d times", name, len(values))
		case len(values[0]) > maxValue:
			return nil, bad("", "the parameter %s has %d bytes, at most %d are allowed", name, len(values[0]), maxValue)
		}
	}
	return &request{Request: r, route: rt, query: query}, nil
}

func list(words []string) string { return "the parameters " + strings.Join(words, ", ") }

func (r *request) str(name string) string { return r.query.Get(name) }

// oneOf returns a parameter that is one of the words; the first is the default.
func (r *request) oneOf(name string, words ...string) (string, error) {
	text := r.str(name)
	if text == "" {
		return words[0], nil
	}
	if !slices.Contains(words, text) {
		return "", bad("write one of: "+strings.TrimPrefix(strings.Join(words, " "), " "), "%s is %.60q", name, text)
	}
	return text, nil
}

// flag returns a Boolean parameter.
func (r *request) flag(name string) (bool, error) {
	word, err := r.oneOf(name, "", "true", "false", "1", "0")
	return word == "true" || word == "1", err
}

// number returns an integer parameter from 0 to max.
func (r *request) number(name string, otherwise, max uint64) (uint64, error) {
	text := r.str(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > max {
		return 0, bad("give a whole number, at most "+strconv.FormatUint(max, 10), "%s is %.60q", name, text)
	}
	return n, nil
}

// limit returns the maximum number of items of the response.
func (r *request) limit() (int, error) {
	n, err := r.number("limit", fewItems, maxPage)
	if err == nil && n == 0 {
		err = bad("give 1 at least", "limit is 0")
	}
	return int(n), err
}

// kinds returns the kinds of records, which are separated by commas.
func (r *request) kinds() ([]audit.Kind, error) {
	text := r.str("kind")
	if text == "" {
		return nil, nil
	}
	var kinds []audit.Kind
	for word := range strings.SplitSeq(text, ",") {
		if kind := audit.Kind(word); !kind.Known() {
			return nil, bad("kinds are "+kindNames(), "%.60q is not a kind of record", word)
		} else if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

func kindNames() string {
	var names []string
	for _, k := range audit.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// instant returns a point in a run's time: the last nanosecond of the given millisecond.
func (r *request) instant(name string, run store.Run, now time.Time) (time.Time, error) {
	text := r.str(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := replay.ParseInstant(text, run, now)
	if err != nil {
		return t, bad("give "+replay.TimeForms+"; or "+replay.InstantForms, "%s: %v", name, err)
	}
	return t, nil
}

// span reads from and to of a run, as a store.Query has them: to is exclusive.
func (r *request) span(run store.Run, now time.Time) (from, to time.Time, err error) {
	from, to, err = replay.ParseRunSpan(r.str("from"), r.str("to"), run, now)
	if err != nil {
		err = bad("give "+replay.TimeForms+"; or "+replay.InstantForms+"; the earlier one as from", "from, to: %v", err)
	}
	return from, to, err
}

// dates reads from and to over all runs: to is exclusive.
func (r *request) dates() (time.Time, time.Time, error) { return dates(r.str("from"), r.str("to")) }

func dates(from, to string) (since, until time.Time, err error) {
	since, until, err = replay.ParseSpan(from, to)
	if err != nil {
		err = bad("give "+replay.TimeForms+"; the earlier one as from", "from, to: %v", err)
	}
	return since, until, err
}

// scope identifies the request for which a cursor is valid: all parameters except the position and the limit.
func (r *request) scope() string {
	query := url.Values{}
	for name, values := range r.query {
		if name != "cursor" && name != "limit" && name != "tenant" {
			query[name] = values
		}
	}
	return r.who.Tenant + "\x00" + r.Method + " " + r.URL.Path + "?" + query.Encode()
}
