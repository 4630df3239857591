package main

import (
	"io"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// TestCommandGroups: the list of commands has each under one of the headings.
func TestCommandGroups(t *testing.T) {
	for _, node := range newParser(new(cli), io.Discard, io.Discard, func() {}).Model.Children {
		if node.Group == nil || !slices.ContainsFunc(groups, func(g kong.Group) bool { return g.Key == node.Group.Key }) {
			t.Errorf("%s stands under no heading: give it a group in cli", node.Name)
		}
	}
}
