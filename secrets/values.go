package secrets

import (
	"maps"
	"slices"
)

// Learn adds the project's values that can be read without minting to the redactor, whether or not a step uses them. It
// is called before anything is recorded. The errors, by the secret's name, are those of values that are masked only if a
// step uses them.
func (i *Issuer) Learn() map[string]error {
	by := map[string][]Binding{}
	for _, b := range i.cfg.Bindings {
		by[scheme(b)] = append(by[scheme(b)], b)
	}
	failed := map[string]error{}
	for _, s := range slices.Sorted(maps.Keys(by)) {
		t, ok := i.cfg.Brokers[s].(Reader)
		if !ok {
			continue
		}
		values, errs := t.ReadValues(Request{Run: i.cfg.Run, Bindings: by[s], Dir: i.cfg.Dir})
		maps.Copy(failed, errs)
		for _, name := range slices.Sorted(maps.Keys(values)) { // if two names have one value, markers contain the first
			if err := i.cfg.Redactor.Add(name, values[name]); err != nil {
				failed[name] = err
				delete(values, name)
			}
		}
		i.values.remember(values)
		wipe(values)
	}
	return failed
}

// Values returns the names of the secrets whose value is in text, in any encoding of the redactor. It ignores
// placeholders and markers.
func (i *Issuer) Values(text []byte) []string { return i.values.find(text) }
