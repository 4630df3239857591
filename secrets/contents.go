package secrets

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// contents has the values of a lease's secrets, and the placeholders of some. The lease's lock guards it.
type contents struct {
	bindings     map[string]Binding // does not change
	values       map[string][]byte
	placeholders map[string]string
}

func newContents(b map[string]Binding) contents {
	return contents{bindings: b, values: map[string][]byte{}, placeholders: map[string]string{}}
}

// wipe overwrites the values and removes the placeholders.
func (c *contents) wipe() {
	wipe(c.values)
	clear(c.placeholders)
}

// items returns the items to deliver to the step.
func (c *contents) items() []Item {
	var items []Item
	for _, name := range slices.Sorted(maps.Keys(c.bindings)) {
		d := c.bindings[name].Deliver
		item := Item{Name: name, Env: d.Env + d.Token, File: d.File}
		if item.Env+item.File == "" {
			continue
		}
		if d.Header != "" {
			item.Value = []byte(c.placeholders[name])
		} else {
			item.Value = bytes.Clone(c.values[name])
		}
		items = append(items, item)
	}
	return items
}

// via returns the form of delivery in the terms of the record.
func via(d Deliver) string {
	var ways []string
	for _, w := range []struct{ name, to string }{{"header", d.Header}, {"env", d.Env}, {"file", d.File}, {"token", d.Token}} {
		if w.to != "" {
			ways = append(ways, w.name)
		}
	}
	return strings.Join(ways, ",")
}

func wipe(values map[string][]byte) {
	for _, v := range values {
		clear(v)
	}
	clear(values)
}
