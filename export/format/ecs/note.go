package ecs

import "github.com/custody-project/custody/audit"

// noteEvent writes a note on a run or on a record of it.
func noteEvent(d *doc, n audit.Note) {
	c := class{kind: "event", category: []string{"api"}, types: []string{"user", "creation"}, action: "note", outcome: "success"}
	if n.Withdraws != "" {
		c.types[1], c.action = "deletion", "note-withdraw"
	}
	top := d.head(c)
	top.Join("message", "note", n.Who+":", string(n.Text))
	u := top.Obj("user")
	u.StrIf("name", n.Who)
	u.Strs("roles", words(n.Role))
	u.End()
	known := endpoint(top, &d.seen, "source", n.Remote, 0, "", "", 0, 0)

	left := d.custody("note")
	left.StrIf("via", n.Via)
	left.StrIf("tenant", n.Tenant)
	left.StrIf("about", n.About)
	left.UintIf("seq", n.Seq)
	left.StrIf("leaf", n.Leaf)
	left.StrIf("text", string(n.Text))
	left.Strs("tags", n.Tags)
	left.StrIf("withdraws", n.Withdraws)
	if !known {
		left.StrIf("remote", n.Remote)
	}
}
