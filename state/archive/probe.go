package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
)

// probe proves that the storage keeps an object that it has, returns what was written, and removes it.
func (a *Archive) probe(ctx context.Context) error {
	name, first := probes+rand.Text(), "custody probe "+rand.Text()
	err := a.objects.Put(ctx, name, strings.NewReader(first))
	if err == nil {
		err = errors.Join(a.probed(ctx, name, first), a.objects.Delete(context.WithoutCancel(ctx), name))
	}
	if err != nil {
		return err
	}
	if _, err := a.objects.Stat(ctx, name); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: an object that was deleted is still there (%v)", ErrUnsafe, err)
	}
	return nil
}

func (a *Archive) probed(ctx context.Context, name, first string) error {
	err := a.objects.Put(ctx, name, strings.NewReader("another"))
	switch {
	case err == nil:
		return fmt.Errorf("%w: it replaces an object despite the condition If-None-Match: choose one with conditional writes", ErrUnsafe)
	case !errors.Is(err, ErrExists):
		return fmt.Errorf("%w: a conditional write (If-None-Match) of an object that exists must fail as such: %w", ErrUnsafe, err)
	}
	r, size, err := a.objects.Get(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(first))+1))
	if err != nil {
		return err
	}
	if string(got) != first || size != int64(len(first)) {
		return fmt.Errorf("%w: it does not return what was written", ErrUnsafe)
	}
	found := false
	err = a.objects.List(ctx, probes, func(o Object) error {
		found = found || o.Name == name
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: it does not list what was written", ErrUnsafe)
	}
	return err
}

// clean removes unfinished uploads and probes of dead processes.
func (a *Archive) clean(ctx context.Context) error {
	before := a.config.Now().Add(-a.config.Abandoned)
	var old []string
	err := a.objects.List(ctx, probes, func(o Object) error {
		if o.Stored.Before(before) {
			old = append(old, o.Name)
		}
		return nil
	})
	for _, name := range old {
		err = errors.Join(err, a.objects.Delete(ctx, name))
	}
	return errors.Join(err, a.objects.Clean(ctx, before))
}
