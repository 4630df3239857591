package api

import (
	"net/http"
)

const (
	// fewLines is how much of the output a state has unless asked, and maxLines at the most.
	fewLines, maxLines = 10, 1000
)

func (s *Server) state(w http.ResponseWriter, r *request) error {
	run, err := s.find(r)
	if err != nil {
		return err
	}
	at, err := r.instant("at", run, s.now())
	if err != nil {
		return err
	}
	if at.IsZero() {
		at = s.end(run)
	}
	lines, err := r.number("lines", fewLines, maxLines)
	if err != nil {
		return err
	}
	st, err := s.story(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, st.StateAt(at, int(lines)))
}
