package export_test

import (
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

// The table of docs/mapping.md, by samples. Samples that are not listed are informational.
func TestSeverityOf(t *testing.T) {
	want := map[string]export.Severity{
		"run/interrupted": export.Warning, "step/timeout": export.Warning, "step/failed": export.Warning,
		"step/exit3": export.Notice, "step/cancelled": export.Notice,
		"flow/deny": export.Warning, "flow/sum": export.Warning, "flow/sni": export.Warning, "flow/revoke": export.Warning,
		"dns/deny": export.Warning, "dns/badvers": export.Warning, "dns/odd": export.Warning, "http/delete": export.Warning,
		"llm/error": export.Notice, "policy/first": export.Notice, "policy/change": export.Notice,
		"probe/escaped": export.Alert, "vm/freeze": export.Warning, "vm/thaw": export.Notice, "vm/silent": export.Warning,
		"inbound/refuse": export.Notice, "secret/refuse": export.Warning, "secret/expire": export.Notice, "copy/failed": export.Warning,
		"gap/output": export.Warning, "gap/wal": export.Error, "gap/ring": export.Error,
		"finding/tunnel": export.Error, "finding/revoke": export.Alert, "finding/freeze": export.Alert, "finding/end": export.Alert,
		"access/export": export.Notice, "access/manage": export.Notice, "access/project": export.Notice, "access/grant": export.Notice, "access/dropped": export.Notice,
		"access/other-tenant": export.Warning, "access/nobody": export.Warning, "access/export-refused": export.Warning,
		"erased/record": export.Notice,
	}
	for _, s := range sample.All() {
		w, ok := want[s.Name]
		if !ok {
			w = export.Info
		}
		if got := export.SeverityOf(s.Event); got != w {
			t.Errorf("%s: %d, not %d", s.Name, got, w)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("no samples: %v", want)
	}
	blocked := sample.Named("probe/control")
	p := *blocked.Probe
	p.Blocked = true
	if blocked.Probe = &p; export.SeverityOf(blocked) != export.Error {
		t.Error("a control that does not get through proves nothing")
	}
}

// TestSeverityOfKinds: an event with nothing unusual in its payload has the severity of the table of kinds.
func TestSeverityOfKinds(t *testing.T) {
	for _, k := range audit.KindTable() {
		e := export.Event{}
		e.Kind = k.Kind
		e.SetPayload()
		if p := e.Probe; p != nil { // the zero value is an attempt that was neither blocked nor recorded
			p.Blocked, p.Recorded = true, true
		}
		if got := export.SeverityOf(e); got != k.Severity {
			t.Errorf("kind %s: severity %d, the table has %d", k.Kind, got, k.Severity)
		}
	}
}
