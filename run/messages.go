package run

import "github.com/custody-project/custody/redact"

// messages reports to the caller of a run and masks secret values. Its methods are safe for concurrent use.
type messages struct {
	redactor             *redact.Redactor // nil until Prepare has made it; no secret has been read before
	toNotice, toProgress func(string)     // toProgress may be nil
	toProblem            func(error)
}

func (m *messages) mask(text string) string {
	if m.redactor == nil {
		return text
	}
	return m.redactor.String(text)
}

func (m *messages) notice(text string) { m.toNotice(m.mask(text)) }

func (m *messages) progress(text string) {
	if m.toProgress != nil {
		m.toProgress(m.mask(text))
	}
}

func (m *messages) problem(err error) { m.toProblem(m.masked(err)) }

// masked returns the error with secret values masked in its text.
func (m *messages) masked(err error) error { return &maskedError{err, m.mask} }

// maskedError is an error with secret values masked in its text.
type maskedError struct {
	err  error
	mask func(string) string
}

// Error implements error.
func (e *maskedError) Error() string { return e.mask(e.err.Error()) }

// Unwrap returns the original error.
func (e *maskedError) Unwrap() error { return e.err }
