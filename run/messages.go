package run

import "github.com/custody-project/custody/redact"

// messages reports to the caller of a run, without the values of secrets. Its methods are safe for concurrent use.
type messages struct {
	redactor             *redact.Redactor // nil before there is one: then no secret was read
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

// masked returns an error without the values of secrets in its text.
func (m *messages) masked(err error) error { return &maskedError{err, m.mask} }

// maskedError is an error whose text has no values of secrets.
type maskedError struct {
	err  error
	mask func(string) string
}

// Error implements error.
func (e *maskedError) Error() string { return e.mask(e.err.Error()) }

// Unwrap gives the error as it is.
func (e *maskedError) Unwrap() error { return e.err }
