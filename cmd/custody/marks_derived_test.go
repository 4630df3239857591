package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store"
)

// TestMarksDerived: each answer that is derived from a run's records lists those that are not what was signed; one record, the
// records of a stream, and notes are marked.
func TestMarksDerived(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	h, err := host.Open(d.home)
	if err != nil {
		t.Fatal(err)
	}
	genuine, altered := pastRun(t, h, host.NewRunID(time.Now())), pastRun(t, h, host.NewRunID(time.Now()))
	d.must(0, "note", altered, "a note")
	d.must(0, "note", altered, "a second note")
	second := d.notes(altered)[1].ID
	d.must(0, "note", altered, "--withdraw", second, "a mistake")
	s := d.serving()
	s.token = d.newToken("auditor", "auditor")

	derived := []string{"", "/state", "/changes", "/lanes", "/processes", "/connections", "/files", "/calls", "/credentials", "/findings", "/output", "/records/2"}
	wantDoubt := func(run, path string, want string) {
		t.Helper()
		status, body := s.ask("GET", "runs/"+run+path, nil)
		var answer struct {
			Doubt json.RawMessage
			Mark  json.RawMessage `json:"verification"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK {
			t.Fatalf("%s%s: %d %.300s", run, path, status, body)
		}
		if got := string(answer.Doubt); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s%s: doubt is %s, want %s", run, path, got, want)
		}
		if marked := strings.Contains(string(answer.Mark), `"fails"`); path == "/records/2" && marked != (want != "") {
			t.Errorf("%s%s: verification is %s", run, path, answer.Mark)
		}
	}
	for _, note := range d.notes(altered) {
		if note.Mark != nil {
			t.Errorf("nothing is altered: %+v", note)
		}
	}
	d.sqlite("UPDATE records SET body = replace(body, '\"seq\":2', '\"seq\":2 ') WHERE run = '" + altered + "' AND seq = 2")
	for _, path := range derived {
		wantDoubt(genuine, path, "")
		wantDoubt(altered, path, `{"count":1,"records":[{"seq":2,"verification":{"state":"fails","text":"it is not the record that was signed"`)
	}
	if status, body := s.ask("GET", fmt.Sprintf("compare?a=%s&b=%s", genuine, altered), nil); status != http.StatusOK || strings.Count(string(body), `"doubt":{"count":1`) != 1 {
		t.Errorf("compare: %d %.2000s", status, body)
	}
	for run, want := range map[string]int{genuine: 0, altered: 1} {
		if body := s.streamed("runs/" + run + "/live?after=0"); strings.Count(body, `"verification":{"state":"fails","text":"it is not`) != want {
			t.Errorf("live: want %d marks: %.2000s", want, body)
		}
	}

	// The first note is altered, and the withdrawal of the second one.
	d.sqlite("UPDATE records SET body = replace(body, 'a note', 'a nose') WHERE kind = 'note'")
	d.sqlite("UPDATE records SET body = replace(body, 'a mistake', 'a mistook') WHERE kind = 'note'")
	for _, note := range d.notes(altered) {
		if note.Mark == nil || note.Mark.State != store.Fails {
			t.Errorf("custody notes --json: %+v", note)
		}
	}
	if text := d.must(0, "notes", altered).stdout; strings.Count(text, "it is not the record that was signed") != 2 {
		t.Errorf("custody notes: %s", text)
	}
	if text := d.must(0, "timeline", altered).stdout; strings.Count(text, "it is not the record that was signed") < 3 {
		t.Errorf("custody timeline: %s", text)
	}
	if _, body := s.ask("GET", "runs/"+altered+"/notes", nil); strings.Count(string(body), `"verification":{"state":"fails"`) != 2 {
		t.Errorf("the API's notes: %s", body)
	}
}

// markedNote is a line of custody notes --json.
type markedNote struct {
	ID   string
	Mark *store.Mark `json:"verification"`
}

func (d *door) notes(run string) (all []markedNote) {
	d.Helper()
	for line := range strings.Lines(d.must(0, "notes", "--json", run).stdout) {
		var n markedNote
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			d.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// streamed returns an event stream up to the event that follows on its first records.
func (s *server) streamed(path string) string {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.base+"api/v1/"+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(res.Body); lines.Scan() && lines.Text() != "event: run"; {
		all.WriteString(lines.Text() + "\n")
	}
	if !strings.Contains(all.String(), "event: records") {
		s.Errorf("%s: there are no records: %s", path, all.String())
	}
	return all.String()
}
