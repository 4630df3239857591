package ecs

import "github.com/custody-project/custody/audit"

// note writes a note on a run or on a record of it.
func (d *doc) note(n audit.Note) {
	c := class{kind: "event", category: []string{"api"}, types: []string{"user", "creation"}, action: "note", outcome: "success"}
	if n.Withdraws != "" {
		c.types[1], c.action = "deletion", "note-withdraw"
	}
	d.head(c)
	d.Join("message", "note", n.Who+":", string(n.Text))
	u := d.Obj("user")
	d.StrIf("name", n.Who)
	d.Strs("roles", words(n.Role))
	d.End(u)
	known := d.end("source", n.Remote, 0, "", "", 0, 0)

	d.custody("note")
	d.StrIf("via", n.Via)
	d.StrIf("tenant", n.Tenant)
	d.StrIf("about", n.About)
	d.UintIf("seq", n.Seq)
	d.StrIf("leaf", n.Leaf)
	d.StrIf("text", string(n.Text))
	d.Strs("tags", n.Tags)
	d.StrIf("withdraws", n.Withdraws)
	if !known {
		d.StrIf("remote", n.Remote)
	}
}
