package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/format/ocsf"
)

// ocsf measures the mapping of records to OCSF on one core, from their exact bytes to the line
// that a sink takes.
func (r *report) ocsf(_ context.Context, _ string) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	format, err := ocsf.New("")
	if err != nil {
		return err
	}
	bodies := make([][]byte, min(r.events, 100_000))
	for n := range bodies {
		bodies[n], err = json.Marshal(audit.Record{V: audit.Version, Run: "r-loadtest", Seq: uint64(n + 1), Event: made(n, time.Now().UTC())})
		if err != nil {
			return err
		}
	}
	var line []byte
	var in, out int
	mapping := time.Duration(0)
	began := time.Now()
	for _, body := range bodies {
		e := export.Event{Host: "custody-loadtest", Body: body}
		if err := json.Unmarshal(body, &e.Record); err != nil {
			return err
		}
		mapped := time.Now()
		if line, err = format.Append(line[:0], e); err != nil {
			return err
		}
		mapping += time.Since(mapped)
		in, out = in+len(body), out+len(line)
	}
	took := time.Since(began)
	r.add("export as OCSF, one core", perSecond(len(bodies), took, "events"),
		"of which without decoding the record: "+perSecond(len(bodies), mapping, "events"),
		fmt.Sprintf("%d bytes of %d an event", out/len(bodies), in/len(bodies)))
	return nil
}
