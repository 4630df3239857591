package api

import (
	"bytes"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
)

type recordFilter struct {
	Kinds    []audit.Kind
	Steps    []string
	Observer audit.Observer
	Verdict  audit.Verdict
	Proc     string
	Text     string
	From, To time.Time
}

func match(f recordFilter, row store.Row) bool {
	return (f.Observer == "" || row.Observer == f.Observer) && (f.Proc == "" || f.Proc == row.Proc) &&
		(len(f.Steps) == 0 || slices.Contains(f.Steps, row.Step)) &&
		(f.Text == "" || bytes.Contains(bytes.ToLower(row.Body), bytes.ToLower([]byte(f.Text)))) &&
		(f.Verdict == "" || bytes.Contains(row.Body, []byte(`"verdict":"`+f.Verdict+`"`)))
}
