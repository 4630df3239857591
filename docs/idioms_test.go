package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// idioms are private words for things that have a standard term, and what to write instead. The list grows; glossary.md
// has the terms.
var idioms = []struct{ pattern, instead string }{
	{`\b[Ww]hoever\b`, "name the actor, or: anyone who"},
	{`\b([Nn]obody|[Ss]omebody|[Aa]nybody)\b`, "name the actor, or: no one, someone, anyone"},
	{`\b[Ww]ho (is to|looks|asks|reads|wants) `, "name the actor: the verifier, the client, the reader"},
	{`\b(is|are|was|were|be|been) told\b`, "is reported, gets an answer, is set to"},
	{`\btold (at|of|on|about)\b`, "reported"},
	{`\bat once\b`, "concurrently, or immediately"},
	{`\banew\b`, "again"},
	{`\bby another way\b`, "over another channel"},
	{`\blittle internet\b`, "simulated internet"},
	{`\bvouch(es)?\b`, "attests, cosigns"},
	{`\bgoes by\b`, "follows"},
	{`\bcalls of (language )?models?\b`, "LLM API calls"},
}

// TestIdioms: the pages use standard terms. What programs print stands on pages as it is.
func TestIdioms(t *testing.T) {
	for name, text := range pages(t) {
		if name == "glossary.md" { // it lists what not to write
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "    ") {
				continue
			}
			for _, idiom := range idioms {
				if word := regexp.MustCompile(idiom.pattern).FindString(line); word != "" {
					t.Errorf("%s:%d: %q: write: %s", name, i+1, word, idiom.instead)
				}
			}
		}
	}
}
