package views

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	ann = Owner{"acme", "token", "ann"}
	ben = Owner{"acme", "token", "ben"}
)

// TestShelf: views are their owner's alone, survive, are renamed and removed, and are bounded.
func TestShelf(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir()+"/views", t.Context()
	s := Open(dir)
	if all, err := s.List(ann); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	b, err := s.Save(ctx, ann, "b", "#/runs/r-1?kind=dns&at=%2B1s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, ann, "a", "#/search?q=x"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []Owner{ben, {"globex", "token", "ann"}, {"acme", "oidc", "ann"}, {"", "token", "ann"}} {
		if all, err := s.List(other); err != nil || len(all) != 0 {
			t.Errorf("%v sees %v %v", other, all, err)
		}
		if err := s.Remove(ctx, other, b.ID); !errors.Is(err, ErrNoView) {
			t.Errorf("%v removes: %v", other, err)
		}
		if _, err := s.Replace(ctx, other, b.ID, "x", "#/runs"); !errors.Is(err, ErrNoView) {
			t.Errorf("%v renames: %v", other, err)
		}
	}
	if v, err := s.Replace(ctx, ann, b.ID, "c", "#/runs"); err != nil || v.Name != "c" || v.Address != "#/runs" || v.ID != b.ID {
		t.Error(v, err)
	}
	all, err := Open(dir).List(ann)
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "c" {
		t.Errorf("%+v %v", all, err)
	}
	if err := s.Remove(ctx, ann, b.ID); err != nil {
		t.Error(err)
	}
	for i := range MaxViews {
		_, err = s.Save(ctx, ann, fmt.Sprint(i), "#/runs")
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
}

// TestShelfShared: several processes lose none of what each saves.
func TestShelfShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var saving sync.WaitGroup
	for i := range 20 {
		saving.Go(func() {
			if _, err := Open(dir).Save(context.Background(), ann, fmt.Sprint(i), "#/runs"); err != nil {
				t.Error(err)
			}
		})
	}
	saving.Wait()
	if all, err := Open(dir).List(ann); err != nil || len(all) != 20 {
		t.Error(len(all), err)
	}
}

// TestCheck: an address leads into the page and nowhere else.
func TestCheck(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"#/runs": true, "#/runs/r-01m7?seq=4&at=%2B1.5s&panel=network&kind=dns%2Cflow": true, "#/search?q=a+b%3Cscript%3E": true, "#/compare?a=x&b=y": true, "#/runs?": true,
		"": false, "#": false, "#/": false, "/runs": false, "#/nothing": false, "#/runs/a/b": false, "#once=cso_x/runs": false, "javascript:alert(1)": false, "//evil.example": false,
		"https://evil.example/#/runs": false, "#/runs\n": false, "#/runs/<script>": false, `#/runs?q="`: false, "#/runs?x=\\": false, "#/runs/ä": false, "#/runs#/runs": false, "#//evil.example": false,
		"#/runs?q=" + strings.Repeat("x", MaxAddress): false, " #/runs": false, "#/runs?x=javascript:x": false, "#/runsx": false,
	} {
		if err := Check("a name", addr); (err == nil) != want {
			t.Errorf("%.60q: %v", addr, err)
		}
	}
	for name, want := range map[string]bool{
		"denials of März": true, "<b>": true, "": false, "  ": false, "a\nb": false, "a\x1b[2J": false, "a\u202eb": false, "a\u200bb": false, "\xff": false,
		strings.Repeat("ä", MaxName): true, strings.Repeat("ä", MaxName+1): false,
	} {
		if err := Check(name, "#/runs"); (err == nil) != want {
			t.Errorf("%.60q: %v", name, err)
		}
	}
}

// TestScreens: the screens are those that the page has.
func TestScreens(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../web/ui/src/panels/index.ts")
	if err != nil {
		t.Fatal(err)
	}
	page := []string{"runs"}
	for _, m := range regexp.MustCompile(`\{ route: "([a-z]+)"`).FindAllStringSubmatch(string(text), -1) {
		page = append(page, m[1])
	}
	if !slices.Equal(page, Screens()) {
		t.Errorf("the page has %v, addresses begin with %v", page, Screens())
	}
}

// FuzzParse: what is read could have been saved by its owner.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"owner":{"tenant":"acme","via":"token","name":"ann"},"views":[{"id":"0011223344556677","name":"a","address":"#/runs","saved":"2026-11-03T12:00:00Z"}]}`))
	f.Add([]byte(`{"version":1,"owner":{"via":"token","name":"ann"},"views":null}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parse(text, ann)
		if err != nil {
			return
		}
		for _, v := range all {
			if err := Check(v.Name, v.Address); err != nil {
				t.Error(err)
			}
		}
	})
}
