// Package hec is the sink for Splunk's HTTP Event Collector, with indexer acknowledgement.
//
// A 200 means that Splunk received a request, not that it indexed it. With acknowledgement, which is a property of the
// token, the answer has an id, and the sink asks until Splunk reports that id as indexed; requests that are not indexed
// in time are sent again.
package hec

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// Options of a Sink. URL and Token are required.
type Options struct {
	URL        string // https://HOST:8088
	TLS        *tls.Config
	Token      peer.Secret
	Headers    map[string]string
	Index      string // empty: the token's
	SourceType string
	NoAck      bool          // the token has no acknowledgement
	AckWithin  time.Duration // time after which a request is sent again; 90 s
	AckPoll    time.Duration // 500 ms, then longer up to 5 s
}

// Limits of a request. Splunk Cloud accepts 1 MiB; all requests of a batch are acknowledged together.
const (
	requestBytes = 1 << 20
	batchItems   = 5000
	batchBytes   = 8 << 20
	answerBytes  = 1 << 20
	askTimeout   = 15 * time.Second
)

// Sink sends to one collector.
//
//	batch --> request, request, ... --200, ackId--> asked about, together --true--> taken
//	            |  400: these events                     | not in time
//	            |  other: later                       '--> later, with the same ids of events
type Sink struct {
	o       Options
	http    *peer.HTTP
	channel string // of this process; ids of acknowledgements are per channel
	noAck   atomic.Bool
}

// New returns a sink, which connects when there is something to send.
func New(o Options) *Sink {
	if o.AckWithin == 0 {
		o.AckWithin = 90 * time.Second
	}
	if o.AckPoll == 0 {
		o.AckPoll = 500 * time.Millisecond
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	s := &Sink{o: o, http: peer.NewHTTP(o.TLS), channel: uuid.NewString()}
	for k, v := range o.Headers {
		s.http.Header.Set(k, v)
	}
	s.http.Header.Set("X-Splunk-Request-Channel", s.channel)
	s.http.Authorize = func() (string, error) {
		token, err := o.Token.Value()
		return "Splunk " + token, err
	}
	s.noAck.Store(o.NoAck)
	return s
}

// Batch implements export.Batcher: large, since a batch waits for its acknowledgements.
func (s *Sink) Batch() export.Batch { return export.Batch{Items: batchItems, Bytes: batchBytes} }

// Warning implements export.Warner.
func (s *Sink) Warning() string {
	if s.noAck.Load() {
		return "the token has no indexer acknowledgement: Splunk confirms that it received events, not that it indexed them"
	}
	return ""
}

// request is a part of a batch: items from, to.
type request struct {
	from, to int
	body     []byte
	ack      uint64
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	outcomes := make(export.Outcomes, len(items))
	var waiting []request
	for work := s.requests(items); len(work) > 0; {
		r := work[0]
		acked, err := s.post(ctx, &r)
		_, refused := err.(*export.Refused)
		switch {
		case refused && r.to-r.from > 1:
			half := (r.from + r.to) / 2
			work = append([]request{s.request(items, r.from, half), s.request(items, half, r.to)}, work[1:]...)
			continue
		case refused:
			outcomes[r.from] = err
		case err != nil: // later ones are not sent before it, to keep the order
			for i := r.from; i < len(items); i++ {
				outcomes[i] = err
			}
			work = nil
			continue
		case acked:
			waiting = append(waiting, r)
		}
		work = work[1:]
	}
	s.acknowledged(ctx, waiting, outcomes)
	if slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
		return outcomes
	}
	return nil
}

// requests splits a batch into bodies of a size that every collector accepts.
func (s *Sink) requests(items []export.Item) (all []request) {
	r := request{}
	for i, item := range items {
		one := s.event(item)
		if len(r.body) > 0 && len(r.body)+len(one) > requestBytes {
			all = append(all, r)
			r = request{from: i}
		}
		r.body, r.to = append(r.body, one...), i+1
	}
	if len(r.body) > 0 {
		all = append(all, r)
	}
	return all
}

func (s *Sink) request(items []export.Item, from, to int) request {
	r := request{from: from, to: to}
	for _, item := range items[from:to] {
		r.body = append(r.body, s.event(item)...)
	}
	return r
}

// event is one object in Splunk's format: a request contains them without commas.
func (s *Sink) event(i export.Item) []byte {
	e := struct {
		Time       json.Number       `json:"time"` // seconds, with three decimals
		Host       string            `json:"host,omitempty"`
		Source     string            `json:"source"`
		SourceType string            `json:"sourcetype"`
		Index      string            `json:"index,omitempty"`
		Event      any               `json:"event"`
		Fields     map[string]string `json:"fields"`
	}{
		json.Number(strconv.FormatFloat(float64(i.Time.UnixMilli())/1000, 'f', 3, 64)), i.Host, "custody", s.o.SourceType, s.o.Index,
		string(i.Data), map[string]string{"custody_id": i.ID, "custody_run": i.Run},
	}
	if i.Tenant != "" {
		e.Fields["custody_tenant"] = i.Tenant
	}
	if json.Valid(i.Data) {
		e.Event = json.RawMessage(i.Data)
	}
	b, _ := json.Marshal(e) // it always encodes
	return b
}

// verdict is a collector's answer.
type verdict struct {
	Text string  `json:"text"`
	Code *int    `json:"code"`
	Ack  *uint64 `json:"ackId"`
}

// post sends a request; acked is set if the sink must wait for its acknowledgement.
func (s *Sink) post(ctx context.Context, r *request) (acked bool, err error) {
	a, err := s.http.Post(ctx, s.o.URL+"/services/collector/event", "application/json", r.body, false, answerBytes)
	if err != nil {
		return false, err
	}
	var v verdict
	understood := json.Unmarshal(a.Body, &v) == nil && v.Code != nil
	if a.Status == 400 && understood && !aboutEvents(*v.Code) {
		return false, a.Later()
	}
	if err := a.Outcome(); err != nil {
		return false, err
	}
	if !understood || *v.Code != 0 {
		return false, fmt.Errorf("this is not an answer of a collector: %s", a.Said())
	}
	if v.Ack == nil || s.o.NoAck {
		s.noAck.Store(true)
		return false, nil
	}
	s.noAck.Store(false)
	r.ack = *v.Ack
	return true, nil
}

// aboutEvents reports whether a collector's code concerns the data: no data, invalid format, no event, an empty one,
// wrong fields. The others concern tokens, indexes and channels, which an administrator must repair.
func aboutEvents(code int) bool { return slices.Contains([]int{5, 6, 12, 13, 15}, code) }

// acknowledged waits for requests to be indexed, and sets the outcome of those that were not in time.
func (s *Sink) acknowledged(ctx context.Context, waiting []request, outcomes export.Outcomes) {
	ctx, cancel := context.WithTimeout(ctx, s.o.AckWithin)
	defer cancel()
	why := fmt.Errorf("not indexed within %v", s.o.AckWithin)
	for wait := s.o.AckPoll; len(waiting) > 0; wait = min(wait*3/2, max(s.o.AckPoll, 5*time.Second)) {
		done, err := s.ask(ctx, waiting)
		if err != nil {
			why = fmt.Errorf("not known to be indexed: %w", err)
		}
		waiting = slices.DeleteFunc(waiting, func(r request) bool { return done[strconv.FormatUint(r.ack, 10)] })
		if len(waiting) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			for _, r := range waiting {
				for i := r.from; i < r.to; i++ {
					outcomes[i] = &export.Later{Err: why}
				}
			}
			return
		case <-time.After(wait):
		}
	}
}

// ask asks about all requests together. The answer is true only once for each that is indexed.
func (s *Sink) ask(ctx context.Context, waiting []request) (map[string]bool, error) {
	var q struct {
		Acks []uint64 `json:"acks"`
	}
	for _, r := range waiting {
		q.Acks = append(q.Acks, r.ack)
	}
	body, _ := json.Marshal(q) // numbers always encode
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a, err := s.http.Post(ctx, s.o.URL+"/services/collector/ack?channel="+s.channel, "application/json", body, false, answerBytes)
	if err != nil {
		return nil, err
	}
	if a.Status != 200 {
		return nil, a.Later()
	}
	var v struct {
		Acks map[string]bool `json:"acks"`
	}
	if err := json.Unmarshal(a.Body, &v); err != nil || v.Acks == nil {
		return nil, fmt.Errorf("this is not an answer of a collector: %s", a.Said())
	}
	return v.Acks, nil
}

// Close implements export.Sink.
func (s *Sink) Close() error { return s.http.Close() }
