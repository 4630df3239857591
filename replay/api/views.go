package api

import (
	"errors"
	"net/http"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/views"
)

// ViewRequest is the body of a request that saves a view.
type ViewRequest struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// viewOwner names the principal as the owner of saved views.
func (r *request) viewOwner() views.Owner {
	return views.Owner{Tenant: r.who.Tenant, Via: r.who.Via, Name: r.who.Name}
}

// viewsHandler serves the saved views of the page.
type viewsHandler struct{ shelf *views.Shelf } // nil: there are none

func (h *viewsHandler) list(w http.ResponseWriter, r *request) error {
	if h.shelf == nil {
		return errNotHere("saved views")
	}
	all, err := h.shelf.List(r.viewOwner())
	if err != nil {
		return err
	}
	return answer(w, struct {
		Views []views.View `json:"views"`
	}{all})
}

func (h *viewsHandler) create(w http.ResponseWriter, r *request) error {
	var q ViewRequest
	if err := h.read(r, &q); err != nil {
		return err
	}
	v, err := h.shelf.Save(r.Context(), r.viewOwner(), q.Name, q.Address)
	if err != nil {
		return viewProblem(err)
	}
	return answerWith(w, http.StatusCreated, v)
}

func (h *viewsHandler) change(w http.ResponseWriter, r *request) error {
	var q ViewRequest
	if err := h.read(r, &q); err != nil {
		return err
	}
	v, err := h.shelf.Replace(r.Context(), r.viewOwner(), r.PathValue("id"), q.Name, q.Address)
	if err != nil {
		return viewProblem(err)
	}
	return answer(w, v)
}

func (h *viewsHandler) remove(w http.ResponseWriter, r *request) error {
	if h.shelf == nil {
		return errNotHere("saved views")
	}
	if err := h.shelf.Remove(r.Context(), r.viewOwner(), r.PathValue("id")); err != nil {
		return viewProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *viewsHandler) read(r *request, q *ViewRequest) error {
	if h.shelf == nil {
		return errNotHere("saved views")
	}
	return r.body(q)
}

// viewProblem returns the response to an error of the shelf.
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
