package export

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/custody-project/custody/store"
)

// Write exports the current records of runs, one line for each event, and returns their number.
// It stops with an error at an event that the format does not support.
func Write(ctx context.Context, w io.Writer, src Source, format Format, filter Filter, runs ...store.Run) (n int, err error) {
	for i, err := range items(ctx, src, format, filter, runs) {
		if err != nil {
			return n, err
		}
		if _, err := w.Write(append(i.Data, '\n')); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Send exports the current records of runs to a sink, independently of any Exporter and
// without a cursor: it returns when all events are done, or ctx is done. Permanently refused
// events are counted in Stats.Dead, and become dead letters of o.Name if o.Dir is set.
func Send(ctx context.Context, o Options, runs ...store.Run) (Stats, error) {
	o.defaults()
	told := &tally{s: Stats{Name: o.Name}}
	var dead *Dead
	if o.Dir != "" {
		var err error
		if dead, err = OpenDead(o.Dir, o.Name, o.DeadBytes, o.DeadFiles); err != nil {
			return Stats{}, err
		}
	}
	bury := func(ctx context.Context, i Item, reason string) error {
		o.Log.Warn("an event was refused", "id", i.ID, "reason", reason)
		told.change(func(s *Stats) { s.Dead++ })
		if dead == nil {
			return nil
		}
		dropped, err := dead.add(ctx, letter(i, o.Format.Name(), reason, time.Now()))
		told.change(func(s *Stats) { s.DeadDropped += dropped })
		return err
	}
	c := &courier{sink: o.Sink, timeout: o.Timeout, retry: o.Retry, maxRefused: o.MaxRefused, bury: bury, told: told}
	var batch []Item
	size := 0
	for i, err := range items(ctx, o.Source, o.Format, o.Filter, runs) {
		if err != nil {
			return told.read(), err
		}
		if len(batch) > 0 && (len(batch) >= o.Batch.Items || size+len(i.Data) > o.Batch.Bytes) {
			if err := c.deliver(ctx, batch); err != nil {
				return told.read(), err
			}
			batch, size = nil, 0
		}
		batch, size = append(batch, i), size+len(i.Data)
	}
	err := c.deliver(ctx, batch)
	return told.read(), err
}

// items yields the events of runs that the filter selects.
func items(ctx context.Context, src Source, format Format, filter Filter, runs []store.Run) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r := newReader(src)
		for _, run := range runs {
			if !filter.run(run.Tenant, run.ID) {
				continue
			}
			ref := store.Ref{Tenant: run.Tenant, Host: run.Host, Run: run.ID, Last: math.MaxInt64}
			for e, err := range r.segment(ctx, ref, 0, filter.Kinds) {
				if err != nil {
					yield(Item{}, err)
					return
				}
				i, pass, misfit := filter.item(e, format)
				if misfit != nil {
					misfit = fmt.Errorf("event %s: %w", i.ID, misfit)
				}
				if pass && (!yield(i, misfit) || misfit != nil) {
					return
				}
			}
		}
	}
}

// Redrive sends the dead letters again. It formats each event again from its record in the current format; if the store
// no longer has the record, it sends the stored event. It returns how many were accepted; refused ones become
// dead letters again. If another Redrive with the name is running it returns a *LockedError; an exporter may
// be running. After a kill the next call completes it.
func Redrive(ctx context.Context, o Options) (taken int, err error) {
	o.defaults()
	dead, err := OpenDead(o.Dir, o.Name, o.DeadBytes, o.DeadFiles)
	if err != nil {
		return 0, err
	}
	l, err := lock(ctx, o.Dir, o.Name+".redrive")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	if err := dead.claim(ctx); err != nil {
		return 0, fmt.Errorf("claim dead letters: %w", err)
	}
	told := &tally{}
	c := &courier{sink: o.Sink, timeout: o.Timeout, retry: o.Retry, maxRefused: math.MaxInt, told: told,
		bury: func(ctx context.Context, i Item, reason string) error {
			_, err := dead.add(ctx, letter(i, o.Format.Name(), reason, time.Now()))
			return err
		}}
	r := newReader(o.Source)
	for l, err := range lettersOf(dead.claimed()) {
		if err != nil {
			return int(told.read().Sent), err
		}
		item, again, err := o.again(ctx, r, l)
		if err != nil {
			return int(told.read().Sent), err
		}
		if again != nil {
			_, err = dead.add(ctx, *again)
		} else {
			err = c.deliver(ctx, []Item{item})
		}
		if err != nil {
			return int(told.read().Sent), err
		}
	}
	return int(told.read().Sent), dead.release()
}

// again formats the item of a dead letter again; if the format no longer supports it, it returns the letter.
func (o Options) again(ctx context.Context, r *reader, l Letter) (Item, *Letter, error) {
	ref := store.Ref{Tenant: l.Tenant, Host: l.Host, Run: l.Run, First: l.Seq, Last: l.Seq}
	for e, err := range r.segment(ctx, ref, 0, nil) {
		if err != nil {
			return Item{}, nil, err
		}
		i, _, misfit := Filter{}.item(e, o.Format)
		if misfit != nil {
			again := letter(i, "", misfit.Error(), time.Now())
			return i, &again, nil
		}
		return i, nil, nil
	}
	if l.Format != o.Format.Name() {
		l.At, l.Reason = time.Now().UTC(), "the store no longer has the record, and the event was not in this format"
		return Item{}, &l, nil
	}
	return l.Item(), nil, nil
}
