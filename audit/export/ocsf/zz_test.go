package ocsf

import (
	"bufio"
	"encoding/json"
	"fmt"
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/export"
	"os"
	"testing"
)

func TestReal(t *testing.T) {
	f, err := os.Open("/tmp/mapx/real.ndjson")
	if err != nil {
		t.Skip()
	}
	r := readRules(t)
	sch := schemas(t)
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 8<<20)
	starts := map[string]*audit.Lifecycle{}
	execs := map[string]*audit.Exec{}
	kinds := map[audit.Kind]int{}
	n := 0
	for sc.Scan() {
		e := export.Event{Body: sc.Bytes(), Host: "h"}
		if err := json.Unmarshal(e.Body, &e.Record); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "run" && e.Lifecycle.Phase == "start" {
			starts[e.Run] = e.Lifecycle
		}
		e.Start = starts[e.Run]
		if e.Record.Exec != nil {
			execs[e.Record.Exec.Proc] = e.Record.Exec
		}
		p := ""
		switch {
		case e.Record.Exec != nil:
			p = e.Record.Exec.Proc
		case e.Exit != nil:
			p = e.Exit.Proc
		case e.File != nil:
			p = e.File.Proc
		case e.Flow != nil:
			p = e.Flow.Proc
		}
		if e.Exec = execs[p]; e.Exec != nil {
			e.Parent = execs[e.Exec.Parent]
		}
		kinds[e.Kind]++
		n++
		for _, v := range Versions() {
			b := write(t, v, e)
			if errs := check(r, v, b); len(errs) > 0 {
				t.Errorf("%s %v\n%s", v, errs, b)
			}
		}
		b := write(t, "", e)
		valid(t, sch, b)
	}
	fmt.Println(n, kinds)
}
