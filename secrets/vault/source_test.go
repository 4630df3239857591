package vault

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/custody-project/custody/secrets"
)

func TestParseSource(t *testing.T) {
	for _, c := range []struct {
		from  string
		token bool
		wrong string
	}{
		{"vault:secret/data/agents/git#token", false, ""},
		{"vault:kv/plain#a", false, ""},
		{"vault:secret/data/agents/git", true, ""},
		{"vault:kv/with space/and-ü@:=,~#x", false, ""},
		{"vault:secret/data/agents/git#", false, "has no field"},
		{"vault:secret/data/agents/git", false, "has no field"},
		{"vault:secret/data/agents/git#token", true, "without a field"},
		{"env:HOME", false, "not Vault's"},
		{"vault:#x", false, "has no path"},
		{"vault:secret#x", false, "nothing in it"},
		{"vault:secret/*#x", false, "special meaning"},
		{"vault:secret/+/x#x", false, "special meaning"},
		{"vault:secret/{{identity.entity.id}}#x", false, "special meaning"},
		{"vault:secret/x?version=1#x", false, "special meaning"},
		{"vault:secret/%2e%2e/x#x", false, "special meaning"},
		{"vault:secret/\nx#x", false, "special meaning"},
		{"vault:secret/../sys/raw#x", false, "shortest form"},
		{"vault:secret/./x#x", false, "shortest form"},
		{"vault:/secret/x#x", false, "shortest form"},
		{"vault:secret/x/#x", false, "shortest form"},
		{"vault:secret//x#x", false, "shortest form"},
		{"vault:v1/secret/x#x", false, "begins with v1"},
		{"vault:sys/policy/x#x", false, "Vault's own"},
		{"vault:auth/token/lookup-self#x", false, "Vault's own"},
		{"vault:cubbyhole/x#x", false, "Vault's own"},
		{"vault:identity/oidc/token/x#token", false, "Vault's own"},
		{"vault:" + strings.Repeat("x/", maxPath) + "x#x", false, "has no path"},
	} {
		_, err := parseSource(c.from, c.token)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%.80s: %v", c.from, err)
		}
	}
}

// FuzzPolicy: an accepted path is exactly one path, in the policy and in the request.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"secret/data/x", "a/b", `a/"b`, "a/b*", "a/../b", "a/\xff", "a/ b", "sys/x", "a/<b>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		src, err := parseSource("vault:"+s+"#field", false)
		if err != nil {
			return
		}
		var got struct {
			Path map[string]struct{ Capabilities []string }
		}
		if err := json.Unmarshal([]byte(policy([]string{src.path})), &got); err != nil {
			t.Fatal(err)
		}
		rule, ok := got.Path[src.path]
		if len(got.Path) != 1 || !ok || len(rule.Capabilities) != 1 || rule.Capabilities[0] != "read" {
			t.Errorf("%q: %+v", src.path, got)
		}
		if strings.ContainsAny(src.path, "*+{}") || path.Clean("/v1/"+src.path) != "/v1/"+src.path {
			t.Errorf("%q has a special meaning", src.path)
		}
		if root, _, _ := strings.Cut(src.path, "/"); root == "sys" || root == "auth" {
			t.Errorf("%q is Vault's own", src.path)
		}
	})
}

func TestPlan(t *testing.T) {
	r := request("s", "vault:db/creds/x#username", "vault:db/creds/x#password", "vault:kv/a#b", "vault:kv/a", "vault:kv/t")
	p, err := planOf(r.Bindings)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.reads) != 2 || len(p.fields) != 3 || len(p.tokens) != 2 || p.tokens["d"] != "kv/a" {
		t.Errorf("%+v", p)
	}
	if _, err := planOf([]secrets.Binding{{Name: "bad", From: "vault:x#y"}}); err == nil || !strings.Contains(err.Error(), "secret bad") {
		t.Errorf("%v", err)
	}
}
