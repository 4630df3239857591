package cef

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// noteEvent writes a note on a run or on a record of it.
func noteEvent(l *line, e *export.Event, n audit.Note) {
	signature, name := "note", "Note added"
	if n.Withdraws != "" {
		signature, name = "note:withdraw", "Note withdrawn"
	}
	begin(l, e, signature, name, "success")
	l.str("suser", n.Who)
	l.str("spriv", n.Role)
	if n.Remote != "" {
		l.end(n.Remote, "src", "c6a2", "Source IPv6 Address", "custodyNoteRemote")
	}
	l.str("msg", string(n.Text))
	l.str("custodyNoteVia", n.Via)
	l.str("custodyNoteTenant", n.Tenant)
	l.str("custodyNoteAbout", n.About)
	l.uintIf("custodyNoteSeq", n.Seq)
	l.str("custodyNoteLeaf", n.Leaf)
	l.list("custodyNoteTags", n.Tags)
	l.str("custodyNoteWithdraws", n.Withdraws)
}
