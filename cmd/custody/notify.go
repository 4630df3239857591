package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/notify"
)

type notifyCmd struct {
	Test notifyTestCmd `cmd:"" help:"Send a test message to each webhook and hook, and print the answers."`
	Ls   notifyLsCmd   `cmd:"" help:"List the webhooks and hooks with what waits, what was delivered and the last error."`
	Send notifySendCmd `cmd:"" help:"Deliver what waits, once."`
}

type notifyTestCmd struct {
	Name []string `arg:"" optional:"" help:"Only these webhooks and hooks of host.yaml."`
}

func (c notifyTestCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	results := notify.Try(a.ctx, h.Config().Notify, aboutHost(h), c.Name...)
	if len(results) == 0 {
		return errors.New(home.ConfigFile + " has no webhook or hook under notify: docs/notify.md shows one")
	}
	failed := false
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, r := range results {
		answer := "ok\t" + clean(r.Answer)
		if r.Err != nil {
			failed, answer = true, "FAILED\t"+clean(r.Err.Error())
		}
		fmt.Fprintf(w, "%s\t%s\n", r.Name, answer)
	}
	if err := w.Flush(); err != nil || !failed {
		return err
	}
	return exitCode(1)
}

type notifyLsCmd struct{}

func (notifyLsCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	states := notify.States(h.Notifications(), h.Config().Notify)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tWAITING\tDELIVERED\tDROPPED\tLAST\tERROR")
	for _, s := range states {
		last := "-"
		if !s.Last.IsZero() {
			last = s.Last.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", s.Name, s.Waiting, s.Delivered, s.Dropped, last, orNone(clean(s.Error)))
	}
	return w.Flush()
}

type notifySendCmd struct{}

func (notifySendCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	return notify.Deliver(a.ctx, h.Notifications(), h.Config().Notify, a.say)
}

// aboutHost is what every message of this host has in common.
func aboutHost(h *home.Home) notify.Message {
	m := notify.Message{Tenant: h.Config().Tenant}
	m.Host, _ = os.Hostname()
	return m
}

// openNotifier starts the delivery of messages, if host.yaml names a webhook or a hook; else it returns nil.
func (a *app) openNotifier(h *home.Home, about notify.Message) *notify.Notifier {
	c := h.Config().Notify
	if len(c.Webhooks)+len(c.Hooks) == 0 {
		return nil
	}
	host := aboutHost(h)
	about.Host, about.Tenant = host.Host, host.Tenant
	return notify.Open(a.ctx, h.Notifications(), c, about, a.say)
}

// notifyFailed sends that a check found something. h may be nil; a host without a usable home sends nothing.
func (a *app) notifyFailed(h *home.Home, run, detail string) {
	if h == nil {
		var err error
		if h, err = a.home(); err != nil {
			return
		}
	}
	n := a.openNotifier(h, notify.Message{})
	n.Send(notify.Message{Type: notify.Verify, Severity: "alert", Run: run, Detail: clean(detail)})
	n.Close()
}

// notifyJudged sends that what was verified does not hold.
func (a *app) notifyJudged(what string, j judged) {
	if errors.Is(j.code, exitDoesNotHold) && j.found != nil {
		a.notifyFailed(nil, "", fmt.Sprintf("verify %s: %v", filepath.Base(what), j.found))
	}
}

// posted returns what is called with each event of a run, nil if nothing is sent.
func (j *job) posted(run string) audit.Posted {
	if j.notifier == nil {
		return nil
	}
	return func(ev audit.Event, seq uint64) {
		if ev.VM != nil && ev.VM.Reason == stallReason {
			return // it was sent as it began: the record of it comes at its end
		}
		if m, ok := notify.Of(ev, run, seq); ok {
			j.notifier.Send(m)
		}
	}
}

// notifyStall sends that the record cannot be written. The caller holds j.mu.
func (j *job) notifyStall(err error) {
	j.notifier.Send(notify.Message{Type: notify.Frozen, Severity: "error", Run: j.runID, Detail: stallReason + ": " + j.masked(err)})
}

// notClosed sends that a run's record is not whole, if err says so.
func (j *job) notClosed(err error) {
	if err != nil {
		j.notifier.Send(notify.Message{Type: notify.Verify, Severity: "error", Run: j.record.ID, Detail: "the record could not be closed: " + j.masked(err)})
	}
}

// masked is an error's text without values of secrets.
func (j *job) masked(err error) string {
	if j.mask == nil {
		return err.Error()
	}
	return j.mask(err.Error())
}

// notifications reports whether messages get to where host.yaml sends them.
func notifications(h *home.Home) []doctor.Finding {
	var found []doctor.Finding
	for _, s := range notify.States(h.Notifications(), h.Config().Notify) {
		f := doctor.Finding{Name: "notify " + s.Name, Grade: doctor.OK, Detail: fmt.Sprintf("%d delivered, %d waiting, %d dropped", s.Delivered, s.Waiting, s.Dropped)}
		if s.Error != "" {
			f.Grade = doctor.Warn
			f.Detail += ", failing"
			if !s.Since.IsZero() {
				f.Detail += " since " + s.Since.UTC().Format(time.RFC3339)
			}
			f.Detail += ": " + s.Error
			f.Hint = "custody notify test " + s.Name + " tries it"
		}
		found = append(found, f)
	}
	return found
}
