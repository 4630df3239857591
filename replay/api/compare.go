package api

import (
	"net/http"

	"github.com/custody-project/custody/replay"
)

// Comparison is what one run did and another did not.
type Comparison struct {
	A     RunItem       `json:"a"`
	B     RunItem       `json:"b"`
	OnlyA replay.Traits `json:"only_a"`
	OnlyB replay.Traits `json:"only_b"`
	Both  replay.Common `json:"both"`
}

func (h *runsHandler) compare(w http.ResponseWriter, r *request) error {
	var items [2]RunItem
	var models [2]*model
	for i, name := range []string{"a", "b"} {
		if r.str(name) == "" {
			return bad("give two names of runs, as a and b", "%s is not given", name)
		}
		run, err := h.named(r.Context(), r.who, r.str(name))
		if err != nil {
			return err
		}
		if models[i], err = h.stories.model(r.Context(), run); err != nil {
			return err
		}
		items[i] = h.checks.item(run)
		items[i].Doubt = models[i].doubt
	}
	c := replay.Compare(models[0].Story, models[1].Story)
	return answer(w, Comparison{items[0], items[1], c.OnlyA, c.OnlyB, c.Both})
}
