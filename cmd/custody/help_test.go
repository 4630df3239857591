package main

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// TestCommandGroups: the list of commands has each under one of the headings.
func TestCommandGroups(t *testing.T) {
	a := newApp(context.Background(), nil, io.Discard, io.Discard)
	for _, node := range a.newParser(new(cli), func() {}).Model.Children {
		if node.Group == nil || !slices.ContainsFunc(groups, func(g kong.Group) bool { return g.Key == node.Group.Key }) {
			t.Errorf("%s stands under no heading: give it a group in cli", node.Name)
		}
	}
}
