package ocsf

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/custody-project/custody/audit/export"
	"github.com/custody-project/custody/audit/export/internal/sample"
)

// schemas compiles the published schemas of the default version, by class. They are no part of
// this tree: CUSTODY_OCSF names their folder, ../shared/ocsf beside the module is looked at else.
func schemas(t testing.TB) map[int]*jsonschema.Schema {
	t.Helper()
	dir := os.Getenv("CUSTODY_OCSF")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "ocsf")
	}
	files, _ := filepath.Glob(filepath.Join(dir, Default, "*.schema.json"))
	if len(files) == 0 {
		t.Skipf("NOT VALIDATED: there are no OCSF %s schemas in %s; set CUSTODY_OCSF to their folder", Default, dir)
	}
	byClass := map[int]*jsonschema.Schema{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			Title      string
			Properties struct {
				Class struct{ Enum []int } `json:"class_uid"`
			}
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("schema.json", doc); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Compile("schema.json")
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		uid := head.Properties.Class.Enum[0]
		byClass[uid] = schema
		if ours, ok := classes()[uid]; ok && ours.name != head.Title {
			t.Errorf("class %d is %q, not %q", uid, head.Title, ours.name)
		}
	}
	return byClass
}

func write(t testing.TB, version string, e export.Event) []byte {
	t.Helper()
	f, err := New(version)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Append(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every kind, operation and state is an event that the published schema of its class accepts.
func TestSchema(t *testing.T) {
	byClass := schemas(t)
	for _, s := range sample.All() {
		t.Run(s.Name, func(t *testing.T) { valid(t, byClass, write(t, "", s.Event)) })
	}
}

func valid(t testing.TB, byClass map[int]*jsonschema.Schema, b []byte) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	uid, _ := doc.(map[string]any)["class_uid"].(json.Number).Int64()
	schema := byClass[int(uid)]
	if schema == nil {
		t.Fatalf("no schema for class %d", uid)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("%v\n%s", err, b)
	}
}
