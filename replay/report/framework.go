package report

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed maps/*.yaml
var mapFiles embed.FS

// frameworks are the maps in the order in which they are listed.
var frameworks = [...]string{"soc2", "iso27001", "nist80053", "pci", "gdpr", "euaiact"}

// Framework names a set of controls.
type Framework struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Edition string `json:"edition"`
	About   string `json:"about"` // what the map takes from it, and what it leaves out
}

// Frameworks returns all that Build knows.
func Frameworks() []Framework {
	var list []Framework
	for _, id := range frameworks {
		m, err := load(id)
		if err != nil {
			panic(err) // the maps are part of the program, and a test loads each
		}
		list = append(list, m.framework())
	}
	return list
}

// UnknownError is a framework that there is no map of.
type UnknownError struct{ Framework string }

// Error implements error.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no map of the framework %.40q", e.Framework)
}

// Hint returns what there is.
func (e *UnknownError) Hint() string {
	return "the frameworks are " + strings.Join(frameworks[:], ", ")
}

// controlMap is one file of maps.
type controlMap struct {
	ID       string       `yaml:"id"`
	Title    string       `yaml:"title"`
	Edition  string       `yaml:"edition"`
	About    string       `yaml:"about"`
	IDs      string       `yaml:"ids"` // a regular expression that the controls' ids match
	Limits   []string     `yaml:"limits"`
	Controls []controlDef `yaml:"controls"`
}

type controlDef struct {
	ID       string   `yaml:"id"`
	Title    string   `yaml:"title"`
	Evidence string   `yaml:"evidence"`
	Queries  []string `yaml:"queries"` // names of the vocabulary, some with a number behind; the first is what the control is about
	Limits   []string `yaml:"limits"`
}

func (m controlMap) framework() Framework { return Framework{m.ID, m.Title, m.Edition, m.About} }

// load reads and checks a map.
func load(id string) (controlMap, error) {
	var m controlMap
	if !slices.Contains(frameworks[:], id) {
		return m, &UnknownError{id}
	}
	text, err := mapFiles.ReadFile("maps/" + id + ".yaml")
	if err != nil {
		return m, err
	}
	return parseMap(text)
}

// parseMap takes a map that is whole: each control has an id of the right form, a query of the
// vocabulary, and something that it cannot show.
func parseMap(text []byte) (controlMap, error) {
	var m controlMap
	if err := yaml.UnmarshalWithOptions(text, &m, yaml.Strict()); err != nil {
		return m, fmt.Errorf("control map: %w", err)
	}
	ids, err := regexp.Compile(m.IDs)
	switch {
	case err != nil:
		return m, fmt.Errorf("control map %s: ids: %w", m.ID, err)
	case m.ID == "" || m.Title == "" || m.Edition == "" || m.About == "" || m.IDs == "" || len(m.Limits) == 0 || len(m.Controls) == 0:
		return m, fmt.Errorf("control map %s: id, title, edition, about, ids, limits and controls must not be empty", m.ID)
	}
	seen := map[string]bool{}
	for _, c := range m.Controls {
		if err := c.check(ids); err != nil {
			return m, fmt.Errorf("control map %s: control %q: %w", m.ID, c.ID, err)
		}
		if seen[c.ID] {
			return m, fmt.Errorf("control map %s: control %s is there twice", m.ID, c.ID)
		}
		seen[c.ID] = true
	}
	return m, nil
}

func (c controlDef) check(ids *regexp.Regexp) error {
	switch {
	case !ids.MatchString(c.ID):
		return fmt.Errorf("the id does not match %s", ids)
	case c.Title == "" || c.Evidence == "" || len(c.Queries) == 0 || len(c.Limits) == 0:
		return fmt.Errorf("title, evidence, queries and limits must not be empty")
	}
	for _, q := range c.Queries {
		if _, err := newQuery(q, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}
