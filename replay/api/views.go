package api

import (
	"errors"
	"net/http"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/views"
)

// ViewRequest is a view to be saved.
type ViewRequest struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// reader is who the asker is to the shelf of views.
func (r *request) reader() views.Owner {
	return views.Owner{Tenant: r.who.Tenant, Via: r.who.Via, Name: r.who.Name}
}

func (s *Server) views(w http.ResponseWriter, r *request) error {
	if s.opt.Views == nil {
		return errNotHere("saved views")
	}
	all, err := s.opt.Views.List(r.reader())
	if err != nil {
		return err
	}
	return answer(w, struct {
		Views []views.View `json:"views"`
	}{all})
}

func (s *Server) newView(w http.ResponseWriter, r *request) error {
	var q ViewRequest
	if err := s.readView(r, &q); err != nil {
		return err
	}
	v, err := s.opt.Views.Save(r.Context(), r.reader(), q.Name, q.Address)
	if err != nil {
		return viewProblem(err)
	}
	return answerWith(w, http.StatusCreated, v)
}

func (s *Server) changeView(w http.ResponseWriter, r *request) error {
	var q ViewRequest
	if err := s.readView(r, &q); err != nil {
		return err
	}
	v, err := s.opt.Views.Replace(r.Context(), r.reader(), r.PathValue("id"), q.Name, q.Address)
	if err != nil {
		return viewProblem(err)
	}
	return answer(w, v)
}

func (s *Server) endView(w http.ResponseWriter, r *request) error {
	if s.opt.Views == nil {
		return errNotHere("saved views")
	}
	if err := s.opt.Views.Remove(r.Context(), r.reader(), r.PathValue("id")); err != nil {
		return viewProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) readView(r *request, q *ViewRequest) error {
	if s.opt.Views == nil {
		return errNotHere("saved views")
	}
	return r.body(q)
}

// viewProblem describes what to answer where a view could not be kept.
func viewProblem(err error) error {
	switch {
	case errors.Is(err, views.ErrInvalid):
		return bad("give a name of 1 to 80 characters, and an address as the page's address bar has it, from # on", "%v", err)
	case errors.Is(err, views.ErrNoView):
		return access.NewProblem(http.StatusNotFound, "no-view", "there is no such view", "GET "+Base+"/views lists yours")
	case errors.Is(err, views.ErrFull):
		return access.NewProblem(http.StatusConflict, "views-full", err.Error(), "remove one that is not needed")
	}
	return err
}
