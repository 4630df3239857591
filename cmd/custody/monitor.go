//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/monitor"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
)

type monitorCmd struct {
	Log      string        `arg:"" placeholder:"DIR|URL" help:"The log: the directory $CUSTODY_HOME/log of its host, a copy of it, or the base URL of its files."`
	Key      []string      `placeholder:"KEY|FILE" help:"The public key that signs the log; all of them if it was rotated. Default: this host's own."`
	State    string        `placeholder:"FILE" help:"Where to keep the position in the log, and the alarms. Default: a file of that log in $CUSTODY_HOME/monitor."`
	Interval time.Duration `placeholder:"DURATION" help:"Read it again after each such interval, until stopped. Default: read it once."`
	JSON     bool          `name:"json" help:"One line of JSON for each reading."`
}

func (c monitorCmd) Run(a *app) error {
	m, err := c.open(a)
	if err != nil {
		return a.env().CannotBeJudged(a.ctx, err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			a.Complain(err)
		}
	}()
	var code error
	reported := ""
	for {
		report, found := c.once(a, m)
		if found != nil {
			code = found
		}
		if found == exitDoesNotHold && report != reported {
			a.env().NotifyFailed(a.ctx, nil, "", "monitor of "+c.Log+": "+report)
			reported = report
		}
		if c.Interval <= 0 || a.ctx.Err() != nil {
			return code
		}
		select {
		case <-a.ctx.Done():
			return code
		case <-time.After(c.Interval):
		}
	}
}

func (c monitorCmd) open(a *app) (*monitor.Monitor, error) {
	h, err := a.home()
	if err != nil {
		return nil, err
	}
	if len(c.Key) == 0 {
		c.Key = []string{filepath.Join(h.Dir, "keys", hostkey.PublicFile)}
	}
	keys, err := statement.OpenKeys(a.ctx, c.Key, statement.ParseVerifier)
	if err != nil {
		return nil, fmt.Errorf("--key %w", err)
	}
	state := c.State
	if state == "" {
		state = monitor.StateFile(h.Monitors(), keys[0].Name())
	}
	return monitor.OpenAt(state, c.Log, keys)
}

// once reads the log, prints the findings and returns them as text, with the exit code.
func (c monitorCmd) once(a *app, m *monitor.Monitor) (report string, code error) {
	r, err := m.Check(a.ctx)
	if err != nil && !errors.Is(err, monitor.ErrAlarm) {
		return "", a.env().CannotBeJudged(a.ctx, err)
	}
	if c.JSON {
		line, marshalErr := json.Marshal(struct {
			Time time.Time `json:"time"`
			monitor.Report
		}{time.Now().UTC().Truncate(time.Second), r})
		if marshalErr != nil {
			return "", marshalErr
		}
		fmt.Fprintf(a.stdout, "%s\n", line)
	} else {
		fmt.Fprintln(a.stdout, r)
	}
	if err != nil {
		return r.String(), exitDoesNotHold
	}
	return "", nil
}
