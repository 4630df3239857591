package ocsf

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/export/internal/sample"
)

//go:embed testdata/attributes.txt
var attributes string

// attribute is an attribute in testdata/attributes.txt.
type attribute struct {
	typ      string
	array    bool
	since    int
	required int // required before this minor version; 0: never
	profile  string
}

// shape is a class or an object.
type shape struct {
	name  string
	since int
	attrs map[string]attribute
	one   [][]string
	enums map[string]map[string]value
}

type value struct {
	since   int
	caption string
}

// rules are all shapes.
type rules struct {
	classes map[int]*shape
	objects map[string]*shape
}

const always = 1000

func readRules(t testing.TB) rules {
	t.Helper()
	r := rules{map[int]*shape{}, map[string]*shape{}}
	common := map[string]*shape{}
	var cur *shape
	for n, line := range strings.Split(attributes, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		since := 1
		if i := slices.Index(f, "since"); i >= 0 {
			since, _ = strconv.Atoi(f[i+1])
			f = slices.Delete(f, i, i+2)
		}
		if !strings.HasPrefix(line, " ") {
			cur = &shape{name: f[len(f)-1], since: since, attrs: map[string]attribute{}, enums: map[string]map[string]value{}}
			switch f[0] {
			case "class":
				uid, _ := strconv.Atoi(f[1])
				r.classes[uid] = cur
				cur.merge(common["common"], 1, "")
			case "object":
				r.objects[f[1]] = cur
			case "common":
				common[cur.name] = cur
			default:
				t.Fatalf("line %d: %s", n+1, line)
			}
			continue
		}
		switch f[0] {
		case "one":
			cur.one = append(cur.one, f[1:])
		case "uses":
			cur.merge(common[f[1]], since, f[1])
		case "enum":
			cur.enums[f[1]] = map[string]value{}
			for _, v := range f[2:] {
				id, caption, _ := strings.Cut(v, "=")
				id, from, _ := strings.Cut(id, ":")
				s, _ := strconv.Atoi(from)
				cur.enums[f[1]][id] = value{s, strings.ReplaceAll(caption, "_", " ")}
			}
		default:
			a := attribute{typ: strings.Trim(f[1], "[]"), array: f[1][0] == '[', since: since}
			for _, opt := range f[2:] {
				switch {
				case opt == "!":
					a.required = always
				case strings.HasPrefix(opt, "!<"):
					a.required, _ = strconv.Atoi(opt[2:])
				case opt[0] == '@':
					a.profile = opt[1:]
				default:
					t.Fatalf("line %d: %s", n+1, opt)
				}
			}
			cur.attrs[f[0]] = a
		}
	}
	return r
}

// merge adds the attributes of other that s lacks, from a version on.
func (s *shape) merge(other *shape, since int, profile string) {
	for k, a := range other.attrs {
		a.since = max(a.since, since)
		if _, own := s.attrs[k]; !own {
			s.attrs[k] = a
		}
	}
	for k, e := range other.enums {
		s.enums[k] = e
	}
}

// checker holds one event against the rules of one version.
type checker struct {
	rules
	minor    int
	profiles []string
	errs     []string
}

func (c *checker) errorf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Sprintf(format, args...))
}

var oldHostname = regexp.MustCompile(`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])$`)

func (c *checker) event(b []byte) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var e map[string]any
	if err := dec.Decode(&e); err != nil || dec.More() {
		c.errorf("no JSON object: %v", err)
		return
	}
	meta, _ := e["metadata"].(map[string]any)
	list, _ := meta["profiles"].([]any)
	for _, p := range list {
		c.profiles = append(c.profiles, p.(string))
	}
	uid := number(e["class_uid"])
	s := c.classes[uid]
	if s == nil || s.since > c.minor {
		c.errorf("class %d is not in 1.%d.0", uid, c.minor)
		return
	}
	c.object("", s, e)
	c.numbers(e, uid)
}

// numbers checks the values that depend on the class and the activity.
func (c *checker) numbers(e map[string]any, uid int) {
	activity := number(e["activity_id"])
	if number(e["type_uid"]) != uid*100+activity || number(e["category_uid"]) != uid/1000 {
		c.errorf("type_uid %v, category_uid %v of class %d, activity %d", e["type_uid"], e["category_uid"], uid, activity)
	}
	cl := classes()[uid]
	caption := cl.activities[activity]
	if activity == other {
		caption = "Other"
		if e["activity_name"] == "" || e["activity_name"] == nil {
			c.errorf("activity 99 has no name")
		}
	} else if e["activity_name"] != caption {
		c.errorf("activity_name is %v, not %v", e["activity_name"], caption)
	}
	if e["class_name"] != cl.name || e["category_name"] != cl.category || e["type_name"] != cl.name+": "+caption {
		c.errorf("captions %v, %v, %v of class %d", e["class_name"], e["category_name"], e["type_name"], uid)
	}
	_, acted := e["action_id"]
	if c.minor < 4 && acted != slices.Contains(c.profiles, "security_control") {
		c.errorf("action_id is required with the profile security_control, and it alone")
	}
}

func number(v any) int {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return int(i)
}

func (c *checker) object(path string, s *shape, o map[string]any) {
	for k, v := range o {
		at := strings.TrimPrefix(path+"."+k, ".")
		a, ok := s.attrs[k]
		switch {
		case !ok || a.since > c.minor:
			c.errorf("%s: %s has no such attribute in 1.%d.0", at, s.name, c.minor)
			continue
		case a.profile != "" && !slices.Contains(c.profiles, a.profile):
			c.errorf("%s is of the profile %s, which is not declared", at, a.profile)
		}
		c.attribute(at, a, v)
	}
	for k, a := range s.attrs {
		if _, ok := o[k]; !ok && c.minor < a.required && a.since <= c.minor {
			c.errorf("%s.%s is required", path, k)
		}
	}
	for _, one := range s.one {
		if !slices.ContainsFunc(one, func(k string) bool { _, ok := o[k]; return ok }) {
			c.errorf("%s (%s) has none of %v", path, s.name, one)
		}
	}
	c.enums(path, s, o)
}

func (c *checker) enums(path string, s *shape, o map[string]any) {
	for k, values := range s.enums {
		v, ok := o[k]
		if !ok {
			continue
		}
		known, ok := values[fmt.Sprint(v)]
		if !ok || known.since > c.minor {
			c.errorf("%s.%s: %v is no value of it", path, k, v)
			continue
		}
		sibling, has := o[strings.TrimSuffix(k, "_id")]
		if has && known.caption != "" && sibling != known.caption {
			c.errorf("%s.%s is %v, but its caption %v", path, k, v, sibling)
		}
	}
}

func (c *checker) attribute(at string, a attribute, v any) {
	if a.array {
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			c.errorf("%s is no array, or empty", at)
		}
		for _, e := range list {
			c.value(at, a.typ, e)
		}
		return
	}
	c.value(at, a.typ, v)
}

func (c *checker) value(at, typ string, v any) {
	ok := true
	switch typ {
	case "any":
	case "str":
		_, ok = v.(string)
	case "host":
		s, is := v.(string)
		ok = is && (c.minor >= 4 || oldHostname.MatchString(s))
	case "bool":
		_, ok = v.(bool)
	case "int", "port":
		n, is := v.(json.Number)
		i, err := n.Int64()
		ok = is && err == nil && (typ == "int" || i >= 0 && i <= 65535)
	case "ip":
		s, _ := v.(string)
		_, err := netip.ParseAddr(s)
		ok = err == nil && len(s) <= 40
	default:
		o, is := v.(map[string]any)
		if s := c.objects[typ]; s == nil {
			c.errorf("%s: the list of attributes has no object %s", at, typ)
		} else if ok = is; is {
			c.object(at, s, o)
		}
	}
	if !ok {
		c.errorf("%s is no %s: %v", at, typ, v)
	}
}

// check returns the violations of an event in a version.
func check(r rules, version string, b []byte) []string {
	_, m, _ := parseVersion(version)
	c := checker{rules: r, minor: int(m)}
	c.event(b)
	return c.errs
}

// In every version, every kind, operation and state has the attributes that its class has there.
func TestVersions(t *testing.T) {
	r := readRules(t)
	for _, v := range Versions() {
		for _, s := range append(sample.All(), sample.Marked()...) {
			b := write(t, v, s.Event)
			for _, err := range check(r, v, b) {
				t.Errorf("%s %s: %s\n%s", v, s.Name, err, b)
			}
		}
	}
}
