// Package elastic is the sink for Elasticsearch and other servers with its bulk API.
//
// Each event is a create with our id as _id: for an existing one the server answers 409, which counts as
// accepted. So a repeat never makes a second document, within one backing index of a data stream.
package elastic

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// Options of a Sink. URL and Stream are required.
type Options struct {
	URL      string // https://HOST:9200, with a path if a proxy requires one
	Stream   string // data stream or index
	TLS      *tls.Config
	APIKey   peer.Secret // in the encoded form that Kibana shows
	User     string
	Password peer.Secret
	Headers  map[string]string
}

const answerBytes = 16 << 20

// Sink sends to one cluster.
type Sink struct {
	o    Options
	http *peer.HTTP
	url  string
}

// New returns a sink, which connects when there is something to send.
func New(o Options) (*Sink, error) {
	if o.APIKey.Set() && o.User != "" {
		return nil, errors.New("elastic needs an API key or a user with a password, not both")
	}
	if o.Stream == "" || strings.ContainsAny(o.Stream, `/\*?"<>| ,#`) || strings.ToLower(o.Stream) != o.Stream {
		return nil, fmt.Errorf("%.80q is not the name of a data stream", o.Stream)
	}
	s := &Sink{o: o, http: peer.NewHTTP(o.TLS)}
	// Request only the needed parts of the answer: it has one for each event.
	s.url = strings.TrimSuffix(o.URL, "/") + "/" + url.PathEscape(o.Stream) +
		"/_bulk?filter_path=errors,items.*.status,items.*._id,items.*.error.type,items.*.error.reason"
	for k, v := range o.Headers {
		s.http.Header.Set(k, v)
	}
	s.http.Authorize = s.authorize
	return s, nil
}

func (s *Sink) authorize() (string, error) {
	switch {
	case s.o.APIKey.Set():
		key, err := s.o.APIKey.Value()
		return "ApiKey " + key, err
	case s.o.User != "":
		password, err := s.o.Password.Value()
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(s.o.User+":"+password)), err
	}
	return "", nil
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	var body bytes.Buffer
	for _, i := range items {
		action, _ := json.Marshal(map[string]any{"create": map[string]string{"_id": i.ID}}) // a string always encodes
		body.Write(append(action, '\n'))
		body.Write(append(document(i), '\n'))
	}
	a, err := s.http.Post(ctx, s.url, "application/x-ndjson", body.Bytes(), true, answerBytes)
	if err != nil {
		return err
	}
	if err := a.Outcome(); err != nil {
		return err
	}
	return outcomes(a, items)
}

// document is the event with @timestamp, which a data stream requires. Data that is not a JSON object becomes
// the message of one.
func document(i export.Item) []byte {
	stamp := i.Time.UTC().Format(time.RFC3339Nano)
	data := bytes.TrimSpace(i.Data)
	if len(data) < 2 || data[0] != '{' || !json.Valid(data) {
		b, _ := json.Marshal(map[string]string{"@timestamp": stamp, "message": string(i.Data)}) // strings always encode
		return b
	}
	if gjson.GetBytes(data, `\@timestamp`).Exists() {
		return data
	}
	b := fmt.Appendf(nil, `{"@timestamp":%q`, stamp)
	if rest := bytes.TrimSpace(data[1:]); rest[0] != '}' {
		b = append(b, ',')
	}
	return append(b, data[1:]...)
}

// answer is the used part of the bulk API's answer.
type answer struct {
	Errors *bool                   `json:"errors"`
	Items  []map[string]itemAnswer `json:"items"`
}

type itemAnswer struct {
	ID     string `json:"_id"`
	Status int    `json:"status"`
	Error  *struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
	} `json:"error"`
}

// outcomes reads the result of each event. An answer without one for each, in order, is invalid: all events are sent
// again, and the server then reports those that exist already.
func outcomes(a peer.Answer, items []export.Item) error {
	var v answer
	if err := json.Unmarshal(a.Body, &v); err != nil || a.Cut || v.Errors == nil || len(v.Items) != len(items) {
		return fmt.Errorf("this is not an answer of the bulk API for %d events: %s", len(items), a.Said())
	}
	all := make(export.Outcomes, len(items))
	for i, item := range v.Items {
		got, ok := item["create"]
		if !ok || got.ID != "" && got.ID != items[i].ID {
			return fmt.Errorf("the bulk API answers for other events than were sent: %s", a.Said())
		}
		all[i] = got.outcome(a)
	}
	if slices.ContainsFunc(all, func(err error) bool { return err != nil }) {
		return all
	}
	return nil
}

func (i itemAnswer) outcome(a peer.Answer) error {
	what := fmt.Sprintf("status %d", i.Status)
	if i.Error != nil {
		what = fmt.Sprintf("status %d: %.60s: %.300s", i.Status, i.Error.Type, i.Error.Reason)
	}
	switch {
	case i.Status == 200 || i.Status == 201:
		return nil
	case i.Status == 409 && (i.Error == nil || i.Error.Type == "version_conflict_engine_exception"):
		return nil // it exists already
	case i.Status == 400 || i.Status == 413:
		return &export.Refused{Reason: what}
	}
	// Too busy, or an index, a permission or a node that an administrator must repair.
	a.Body, a.Status = []byte(what), i.Status
	return a.Later()
}

// Close implements export.Sink.
func (s *Sink) Close() error { return s.http.Close() }
