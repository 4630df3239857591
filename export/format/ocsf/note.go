package ocsf

import "github.com/custody-project/custody/audit"

// note writes a note on a run or on a record of it, as an API call.
func (d *doc) note(n audit.Note) {
	activity, name := 1, "note"
	if n.Withdraws != "" {
		activity, name = 4, "withdraw"
	}
	d.head(6003, activity, name, success)
	d.Join("message", "note", n.Who+":", string(n.Text))
	d.secured(allowed, false)
	d.accessActor(n.Who)
	o := d.Obj("api")
	d.Str("operation", name)
	d.custodyService()
	d.End(o)
	d.client(n.Remote)
	d.accessed(audit.Access{About: audit.Text(n.About)})

	d.unmapped()
	d.StrIf("via", n.Via)
	d.StrIf("role", n.Role)
	d.StrIf("tenant", n.Tenant)
	d.UintIf("seq", n.Seq)
	d.StrIf("leaf", n.Leaf)
	d.StrIf("text", string(n.Text))
	d.Strs("tags", n.Tags)
	d.StrIf("withdraws", n.Withdraws)
}
