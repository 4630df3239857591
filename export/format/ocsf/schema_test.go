package ocsf

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

// schemaDir is the directory of the published schemas of the default version. They are not part of
// this tree: CUSTODY_OCSF names the directory above it; otherwise it is ../shared/ocsf beside the module.
func schemaDir(t testing.TB) string {
	t.Helper()
	dir, ok := findSchemas()
	if !ok {
		t.Skipf("NOT VALIDATED: there are no OCSF schemas in %s; set CUSTODY_OCSF to the folder that has %s", dir, Default)
	}
	return dir
}

func findSchemas() (dir string, ok bool) {
	dir = os.Getenv("CUSTODY_OCSF")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "ocsf")
	}
	dir = filepath.Join(dir, Default)
	files, _ := filepath.Glob(filepath.Join(dir, "*.schema.json"))
	return dir, len(files) > 0
}

// schemas compiles the schemas, by class.
func schemas(t testing.TB) map[int]*jsonschema.Schema {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(schemaDir(t), "*.schema.json"))
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
	for _, s := range append(sample.All(), sample.Marked()...) {
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

// The list of attributes matches the published schemas of the default version.
func TestAttributesOfSchema(t *testing.T) {
	r := readRules(t)
	dir := schemaDir(t)
	_, m, _ := parseVersion(Default)
	files, _ := filepath.Glob(filepath.Join(dir, "*.schema.json"))
	for _, f := range files {
		var s struct {
			node
			Defs map[string]node `json:"$defs"`
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		if class := r.classes[s.Properties["class_uid"].Enum[0]]; class != nil {
			agree(t, class, s.node, int(m))
		}
		for name, def := range s.Defs {
			if o := r.objects[name]; o != nil {
				agree(t, o, def, int(m))
			}
		}
	}
}

// node is the compared part of a JSON Schema.
type node struct {
	Properties map[string]struct {
		Type  string
		Ref   string `json:"$ref"`
		Enum  ints
		Items struct{ Type, Ref string }
	}
	Required []string
	AnyOf    []struct{ Required []string }
}

// ints are the numbers of an enum; an enum of strings has none.
type ints []int

func (i *ints) UnmarshalJSON(b []byte) error {
	var list []int
	_ = json.Unmarshal(b, &list)
	*i = list
	return nil
}

func agree(t *testing.T, ours *shape, theirs node, m int) {
	t.Helper()
	for k, a := range ours.attrs {
		p, ok := theirs.Properties[k]
		if (a.since <= m) != ok {
			t.Errorf("%s.%s: since 1.%d.0 here, and there %v", ours.name, k, a.since, ok)
		}
		if ok && a.typ != "any" && (p.Type == "array") != a.array {
			t.Errorf("%s.%s: an array here %v, there %s", ours.name, k, a.array, p.Type)
		}
		if ok && (a.required > m) != slices.Contains(theirs.Required, k) {
			t.Errorf("%s.%s: required here %v, there not so", ours.name, k, a.required > m)
		}
	}
	for k, values := range ours.enums {
		for id, v := range values {
			n, err := strconv.Atoi(id)
			enum := theirs.Properties[k].Enum
			if err == nil && len(enum) > 0 && v.since <= m && !slices.Contains(enum, n) {
				t.Errorf("%s.%s has no %d", ours.name, k, n)
			}
		}
	}
	for _, one := range ours.one {
		for _, k := range one {
			if !slices.ContainsFunc(theirs.AnyOf, func(r struct{ Required []string }) bool { return slices.Contains(r.Required, k) }) &&
				ours.attrs[k].since <= m {
				t.Errorf("%s: %s is not one of the at least one there", ours.name, k)
			}
		}
	}
	for _, k := range theirs.Required {
		if _, ok := ours.attrs[k]; !ok {
			t.Errorf("%s.%s is required there, and not known here", ours.name, k)
		}
	}
}
