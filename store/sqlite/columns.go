package sqlite

import (
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/custody-project/custody/store"
)

// columns of a row of records, in the order of rowArgs and scanRow.
const (
	columnNames = "run, seq, time, kind, step, observer, proc, path, host, hash, secret, rule, body, salt, leaf"
	columns     = 15
)

// rowArgs appends the values of a record's row.
func rowArgs(args []any, h store.Head, f store.Frame) []any {
	args = append(args, h.Run, int64(h.Seq), h.Time.UnixNano(), string(h.Kind), h.Step, string(h.Observer), h.Proc)
	args = append(args, searchColumns(h)...)
	if f.Erased != nil {
		return append(args, []byte{}, []byte{}, f.Erased[:])
	}
	return append(args, f.Body, f.Salt[:], nil)
}

// searchColumns returns path, host, hash, secret and rule.
func searchColumns(h store.Head) []any {
	return []any{orNull(h.Path), orNull(h.Host), hashColumn(h.Hash), orNull(h.Secret), orNull(h.Rule)}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// hashColumn halves the size of a hexadecimal hash, which is stored twice. Any other value is
// stored as text, and so never equals a hash.
func hashColumn(s string) any {
	var raw [32]byte
	if len(s) == 2*len(raw) && isLowerHex(s) {
		hex.Decode(raw[:], []byte(s)) //nolint:errcheck // checked to be hexadecimal
		return raw[:]
	}
	return orNull(s)
}

func isLowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// scanRow reads a tenant and columnNames.
func scanRow(rows *sql.Rows) (store.Row, error) {
	var r store.Row
	var ns int64
	var path, host, secret, rule sql.NullString
	var hash any
	var salt, leaf []byte
	err := rows.Scan(&r.Tenant, &r.Run, &r.Seq, &ns, &r.Kind, &r.Step, &r.Observer, &r.Proc,
		&path, &host, &hash, &secret, &rule, &r.Body, &salt, &leaf)
	if err != nil {
		return r, rowError(rows, "records", r.Run, err)
	}
	r.Time = fromNano(ns)
	r.Path, r.Host, r.Secret, r.Rule = path.String, host.String, secret.String, rule.String
	switch hash := hash.(type) {
	case []byte:
		r.Hash = hex.EncodeToString(hash)
	case string:
		r.Hash = hash
	}
	if leaf != nil {
		r.Body, r.Erased = nil, new([32]byte)
		return r, exactly(r, r.Erased[:], leaf, "leaf")
	}
	return r, exactly(r, r.Salt[:], salt, "salt")
}

func exactly(r store.Row, dst, src []byte, what string) error {
	if len(src) != len(dst) {
		return &RowError{"records", r.Run, fmt.Errorf("record %d has a %s of %d bytes", r.Seq, what, len(src))}
	}
	copy(dst, src)
	return nil
}

// RowError is an invalid value in a row, such as text instead of a number, which Custody does not write. It wraps store.ErrMalformed.
type RowError struct {
	Table, Run string // Run is "" if it cannot be read
	Err        error
}

// Error implements error.
func (e *RowError) Error() string {
	return fmt.Sprintf("a row in the store's table %s, of run %.140q, has a value that custody does not write: %v", e.Table, e.Run, e.Err)
}

// Unwrap returns store.ErrMalformed and Err.
func (e *RowError) Unwrap() []error { return []error{store.ErrMalformed, e.Err} }

// Hint returns the remedy.
func (e *RowError) Hint() string {
	return "custody fsck lists what was altered in the store; custody rebuild builds a new one from the logs in the runs' directories"
}

// rowError makes the error of a failed Scan: a conversion, or the end of the query.
func rowError(rows *sql.Rows, table, run string, err error) error {
	if ended := rows.Err(); ended != nil {
		return ended
	}
	return &RowError{table, run, err}
}
