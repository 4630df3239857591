package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Seal masks every string in the value that v points to, in place, and encodes it as JSON once. It covers strings and
// byte slices of any named type, in structs, slices, arrays, maps (including keys), pointers and interfaces; it does not
// change time.Time, which has no text. Values that it cannot mask are an error: unexported fields that can contain text,
// and types without a JSON form. After an error v may be partly masked and must not be used. A scan that fails is an
// error without details.
func (r *Redactor) Seal(v any) (sealed Sealed, err error) {
	defer func() {
		if recover() != nil {
			sealed, err = Sealed{}, fmt.Errorf("seal %T: the redactor failed", v)
		}
	}()
	ptr := reflect.ValueOf(v)
	if ptr.Kind() != reflect.Pointer || ptr.IsNil() {
		return Sealed{}, fmt.Errorf("seal %T: a pointer to the event is needed", v)
	}
	w := walk{redactor: r}
	if err := w.value(ptr.Elem()); err != nil {
		return Sealed{}, fmt.Errorf("seal %T: %w", v, err)
	}
	if a, ok := v.(appender); ok {
		if b, ok := a.AppendPlain(nil); ok {
			return Sealed{b, w.found}, nil
		}
	}
	buf := r.bufs.Get().(*buffer)
	defer r.recycle(buf)
	if err := buf.enc.Encode(v); err != nil {
		return Sealed{}, fmt.Errorf("seal %T: %w", v, err)
	}
	return Sealed{bytes.Clone(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))), w.found}, nil
}

// appender is a value that can be encoded as encoding/json does it without escaped HTML, at a fraction of the cost.
type appender interface {
	// AppendPlain appends the encoding, or reports that it cannot.
	AppendPlain([]byte) ([]byte, bool)
}

type buffer struct {
	bytes.Buffer
	enc *json.Encoder
}

func newBuffer() *buffer {
	b := &buffer{}
	b.enc = json.NewEncoder(&b.Buffer)
	b.enc.SetEscapeHTML(false)
	return b
}

// maxPooled keeps a huge event's memory from being retained.
const maxPooled = 64 << 10

func (r *Redactor) recycle(b *buffer) {
	if b.Cap() <= maxPooled {
		b.Reset()
		r.bufs.Put(b)
	}
}

// walk is one pass over a value.
type walk struct {
	redactor *Redactor
	depth    int
	found    []string
}

// maxDepth limits the walk over a value that contains itself.
const maxDepth = 1000

// step masks the text in v, which must be settable.
type step func(w *walk, v reflect.Value) error

// plan is how the values of a type are masked. A type without text has a nil do. Plans of recursive types refer to each
// other by pointer.
type plan struct{ do step }

func (p *plan) run(w *walk, v reflect.Value) error {
	if w.depth++; w.depth > maxDepth {
		return errors.New("the value is nested too deeply or contains itself")
	}
	err := p.do(w, v)
	w.depth--
	return err
}

func (w *walk) value(v reflect.Value) error {
	p, err := w.redactor.plan(v.Type())
	if err != nil || p.do == nil {
		return err
	}
	return p.run(w, v)
}

// plan returns the plan for t, which is made on first use.
func (r *Redactor) plan(t reflect.Type) (*plan, error) {
	if p, ok := r.plans.Load(t); ok {
		return p.(*plan), nil
	}
	p, err := planner{}.of(t)
	if err != nil {
		return nil, err
	}
	r.plans.Store(t, p)
	return p, nil
}

// planner makes plans; it has those that are complete or being made.
type planner map[reflect.Type]*plan

func (pl planner) of(t reflect.Type) (*plan, error) {
	if p, ok := pl[t]; ok {
		return p, nil
	}
	// Until it is known, a type that contains itself counts as one with text.
	p := &plan{do: func(*walk, reflect.Value) error { return nil }}
	pl[t] = p
	do, err := pl.step(t)
	if err != nil {
		return nil, err
	}
	p.do = do
	return p, nil
}

func (pl planner) step(t reflect.Type) (step, error) {
	if t == reflect.TypeFor[time.Time]() {
		return nil, nil
	}
	switch t.Kind() {
	case reflect.String:
		return maskString, nil
	case reflect.Slice, reflect.Array:
		return pl.list(t)
	case reflect.Pointer:
		return pl.pointer(t)
	case reflect.Map:
		return pl.table(t)
	case reflect.Interface:
		return maskInterface, nil
	case reflect.Struct:
		return pl.structure(t)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return nil, fmt.Errorf("a %s cannot be in an event", t)
	}
	return nil, nil // numbers and booleans
}

// mask returns t masked, or nil if it has no values.
func (w *walk) mask(t []byte) []byte {
	out, found := w.redactor.redact(t, false)
	for _, name := range found {
		if at, ok := slices.BinarySearch(w.found, name); !ok {
			w.found = slices.Insert(w.found, at, name)
		}
	}
	return out
}

func maskString(w *walk, v reflect.Value) error {
	if of := w.redactor.rules.Load().digestOf(v.String()); of != nil {
		v.SetString(of.marker)
		return nil
	}
	if out := w.mask(view(v.String())); out != nil {
		v.SetString(string(out))
	}
	return nil
}

func maskBytes(w *walk, v reflect.Value) error {
	if out := w.mask(v.Bytes()); out != nil {
		v.SetBytes(out)
	}
	return nil
}

// checkArray returns an error for a value in an array of bytes, which has no space for a marker.
func checkArray(w *walk, v reflect.Value) error {
	if w.mask(v.Bytes()) != nil {
		return fmt.Errorf("a %s contains a secret and cannot be masked", v.Type())
	}
	return nil
}

func (pl planner) list(t reflect.Type) (step, error) {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Kind() == reflect.Array {
			return checkArray, nil
		}
		return maskBytes, nil
	}
	elem, err := pl.of(t.Elem())
	if err != nil || elem.do == nil {
		return nil, err
	}
	return func(w *walk, v reflect.Value) error {
		for i := range v.Len() {
			if err := elem.run(w, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (pl planner) pointer(t reflect.Type) (step, error) {
	elem, err := pl.of(t.Elem())
	if err != nil || elem.do == nil {
		return nil, err
	}
	return func(w *walk, v reflect.Value) error {
		if v.IsNil() {
			return nil
		}
		return elem.run(w, v.Elem())
	}, nil
}

// maskInterface masks a copy of the interface's value, which itself cannot be set.
func maskInterface(w *walk, v reflect.Value) error {
	if v.IsNil() {
		return nil
	}
	c := settable(v.Elem())
	if err := w.value(c); err != nil {
		return err
	}
	v.Set(c)
	return nil
}

func settable(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

func (pl planner) table(t reflect.Type) (step, error) {
	key, err := pl.of(t.Key())
	if err != nil {
		return nil, err
	}
	elem, err := pl.of(t.Elem())
	if err != nil || key.do == nil && elem.do == nil {
		return nil, err
	}
	return func(w *walk, v reflect.Value) error {
		if v.IsNil() {
			return nil
		}
		out := reflect.MakeMapWithSize(t, v.Len())
		for it := v.MapRange(); it.Next(); {
			k, e := settable(it.Key()), settable(it.Value())
			if err := w.pair(key, elem, k, e); err != nil {
				return err
			}
			if err := free(out, k); err != nil {
				return err
			}
			out.SetMapIndex(k, e)
		}
		v.Set(out)
		return nil
	}, nil
}

func (w *walk) pair(key, elem *plan, k, e reflect.Value) error {
	if key.do != nil {
		if err := key.run(w, k); err != nil {
			return err
		}
	}
	if elem.do != nil {
		return elem.run(w, e)
	}
	return nil
}

// free makes k a key that m does not have, since two keys may be equal after masking.
func free(m, k reflect.Value) error {
	if m.MapIndex(k).IsValid() && k.Kind() != reflect.String {
		return fmt.Errorf("two keys of a %s are equal after masking", m.Type())
	}
	base := ""
	for n := 2; m.MapIndex(k).IsValid(); n++ {
		if base == "" {
			base = k.String()
		}
		k.SetString(fmt.Sprintf("%s#%d", base, n))
	}
	return nil
}

// field is a struct field that can contain text.
type field struct {
	index int
	plan  *plan
}

func (pl planner) structure(t reflect.Type) (step, error) {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		p, err := pl.of(f.Type)
		settable := f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct
		switch {
		case !settable && (err != nil || p.do != nil):
			return nil, fmt.Errorf("field %s of %s can contain text but is unexported", f.Name, t)
		case err != nil:
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		case p.do != nil:
			fields = append(fields, field{i, p})
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return func(w *walk, v reflect.Value) error {
		for _, f := range fields {
			if err := f.plan.run(w, v.Field(f.index)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
