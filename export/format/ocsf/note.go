package ocsf

import "github.com/custody-project/custody/audit"

// noteEvent writes a note on a run or on a record of it, as an API call.
func noteEvent(d *doc, n audit.Note) {
	activity, name := 1, "note"
	if n.Withdraws != "" {
		activity, name = 4, "withdraw"
	}
	top := d.head(6003, activity, name, success)
	top.Join("message", "note", n.Who+":", string(n.Text))
	d.secured(allowed, false)
	accessActor(top, d.e, d.v, n.Who)
	o := top.Obj("api")
	o.Str("operation", name)
	custodyService(o)
	o.End()
	client(top, &d.seen, n.Remote)
	accessed(top, audit.Access{About: audit.Text(n.About)})

	left := d.unmapped()
	left.StrIf("via", n.Via)
	left.StrIf("role", n.Role)
	left.StrIf("tenant", n.Tenant)
	left.UintIf("seq", n.Seq)
	left.StrIf("leaf", n.Leaf)
	left.StrIf("text", string(n.Text))
	left.Strs("tags", n.Tags)
	left.StrIf("withdraws", n.Withdraws)
}
