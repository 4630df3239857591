package secrets

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// contents are the values of a lease's secrets, and what the step has in the place of some. The lease's lock guards them.
type contents struct {
	bindings     map[string]Binding // does not change
	values       map[string][]byte
	placeholders map[string]string
}

func newContents(b map[string]Binding) contents {
	return contents{bindings: b, values: map[string][]byte{}, placeholders: map[string]string{}}
}

// wipe makes the values and placeholders useless.
func (c *contents) wipe() {
	wipe(c.values)
	clear(c.placeholders)
}

// items are what goes into the step.
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

// via is how a secret gets to a step, as the record calls it.
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
