package llm

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Limits of the stored tool calls.
const (
	maxAsked    = 128      // tool calls; the oldest are evicted
	maxLeaves   = 64       // strings of one tool call
	maxLeafText = 64 << 10 // bytes of them
	minLeaf     = 3        // bytes: shorter strings are ambiguous
	minInner    = 8        // bytes of a command that is searched for within a longer string
)

// asked stores the strings in the arguments of the latest tool calls.
type asked struct {
	any atomic.Bool // there is at least one tool call

	mu    sync.Mutex // guards the fields below
	turn  []*wish    // oldest first
	where map[string]*wish
}

// wish is a tool call with the strings in its arguments.
type wish struct {
	call, tool string
	leaves     []string
}

// add stores a tool call.
func (a *asked) add(call, tool string, args []byte) {
	w := &wish{call: call, tool: tool, leaves: leavesOf(args)}
	if len(w.leaves) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.where == nil {
		a.where = map[string]*wish{}
	}
	if len(a.turn) == maxAsked {
		for _, leaf := range a.turn[0].leaves {
			if a.where[leaf] == a.turn[0] {
				delete(a.where, leaf)
			}
		}
		a.turn = append(a.turn[:0], a.turn[1:]...)
	}
	a.turn = append(a.turn, w)
	for _, leaf := range w.leaves {
		a.where[leaf] = w
	}
	a.any.Store(true)
}

// find searches the tool calls for parts of an argv, the longest first: all of it, its end, one argument, and finally a
// command within a shell's argument.
func (a *asked) find(argv []string) (call, tool string) {
	if !a.any.Load() || len(argv) == 0 {
		return "", ""
	}
	list, line := "\x00"+strings.Join(argv, "\x00"), strings.Join(argv, " ")
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range min(len(argv), 4) {
		if w := a.either(list, line); w != nil {
			return w.call, w.tool
		}
		list, line = list[1+len(argv[i]):], line[min(len(line), len(argv[i])+1):]
	}
	w := a.argument(argv)
	if w == nil {
		w = a.inside(command(argv))
	}
	if w == nil {
		return "", ""
	}
	return w.call, w.tool
}

// either searches for an argv as a list of strings, and as one line.
func (a *asked) either(list, line string) *wish {
	if w := a.where[list]; w != nil {
		return w
	}
	return a.where[strings.TrimSpace(line)]
}

// argument searches for the longest stored argument. The program's name alone is ambiguous.
func (a *asked) argument(argv []string) (found *wish) {
	longest := 0
	for _, arg := range argv[1:] {
		if len(arg) <= longest {
			continue
		}
		if w := a.where[strings.TrimSpace(arg)]; w != nil {
			found, longest = w, len(arg)
		}
	}
	return found
}

// inside searches for the longest command within a shell's argument, since some agents add words around it.
func (a *asked) inside(script string) (found *wish) {
	if len(script) < minInner {
		return nil
	}
	longest := 0
	for i := len(a.turn) - 1; i >= 0; i-- {
		for _, leaf := range a.turn[i].leaves {
			if len(leaf) >= minInner && len(leaf) > longest && strings.ContainsAny(leaf, " \t\n") && strings.Contains(script, leaf) {
				found, longest = a.turn[i], len(leaf)
			}
		}
	}
	return found
}

// command returns the command of a shell: the argument after its flags, if -c is among them.
func command(argv []string) string {
	given := false
	for _, arg := range argv[1:] {
		switch {
		case strings.HasPrefix(arg, "--"):
		case strings.HasPrefix(arg, "-"):
			given = given || strings.Contains(arg, "c")
		case given:
			return arg
		default:
			return ""
		}
	}
	return ""
}

// leavesOf returns the strings of a JSON text, without surrounding white space, and its lists of strings, both as a line
// and as a list (each element after a NUL). Text that is not JSON is one string.
func leavesOf(args []byte) []string {
	l := &leaves{}
	var v any
	if json.Unmarshal(args, &v) != nil {
		l.add(string(args))
		return l.list
	}
	l.walk(v)
	return l.list
}

type leaves struct {
	list []string
	size int
}

func (l *leaves) walk(v any) {
	switch v := v.(type) {
	case string:
		l.add(v)
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		for _, plain := range []bool{true, false} { // strings before values that may contain very many
			for _, name := range names {
				if _, ok := v[name].(string); ok == plain {
					l.walk(v[name])
				}
			}
		}
	case []any:
		words, all := wordsOf(v)
		if all {
			l.add(strings.Join(words, " "))
			l.add("\x00" + strings.Join(words, "\x00"))
		}
		for _, element := range v {
			if word, ok := element.(string); !all || !ok || strings.ContainsAny(word, " \t\n") {
				l.walk(element) // the words of a command that are not strings themselves
			}
		}
	}
}

// wordsOf returns a list's strings, and whether it can be a command with arguments.
func wordsOf(list []any) (words []string, all bool) {
	for _, element := range list {
		if s, ok := element.(string); ok {
			words = append(words, s)
		}
	}
	return words, len(words) > 1 && len(words) == len(list)
}

func (l *leaves) add(s string) {
	s = strings.TrimSpace(s)
	if len(s) < minLeaf || len(l.list) == maxLeaves || l.size+len(s) > maxLeafText {
		return
	}
	l.list, l.size = append(l.list, s), l.size+len(s)
}
