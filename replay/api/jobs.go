package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

const (
	// maxJobs bounds the jobs, and maxJobsOf those of one principal.
	maxJobs, maxJobsOf = 64, 8
	// keepJob is how long a job and its file are kept after its end.
	keepJob = time.Hour
	// jobFor bounds one job.
	jobFor = 30 * time.Minute
	// defaultJobBytes bounds one file unless Options do.
	defaultJobBytes = 1 << 30
)

// JobState is the state of a job.
//
//	queued --> running --> done
//	   |          |------> failed
//	   `----------+------> (gone: its owner deleted it, or it expired)
type JobState string

// The states of jobs.
const (
	Queued  JobState = "queued"
	Running JobState = "running"
	Done    JobState = "done"
	Failed  JobState = "failed"
)

// Job is an export in the background. Only its owner has access to it.
type Job struct {
	ID      string     `json:"id"`
	State   JobState   `json:"state"`
	Format  string     `json:"format"`
	Runs    int        `json:"runs"`
	Bytes   int64      `json:"bytes"` // of the file so far
	Created time.Time  `json:"created"`
	Ended   *time.Time `json:"ended"`            // nil until it has ended
	Expires time.Time  `json:"expires,omitzero"` // when it and its file are removed
	Detail  string     `json:"detail,omitempty"` // why it failed
	Hint    string     `json:"hint,omitempty"`   // what to do then
}

// job is a Job with the state of its execution.
type job struct {
	Job
	owner  string
	export Export
	filter replay.Filter
	runs   []store.Run
	cancel context.CancelFunc // of the running one
	gone   bool               // its owner ended it
}

// jobs runs exports, one at a time, and writes them to files in its own directory.
type jobs struct {
	source  Source
	markers *markers
	now     func() time.Time
	log     *slog.Logger
	most    int64  // bytes of one file
	base    string // "": there are no jobs
	dir     string // below base, this Server's own
	lock    *os.File
	wake    chan struct{} // capacity 1: a job was added

	mu  sync.Mutex // guards the fields below, and what changes of each job
	all []*job     // oldest first
}

// prepare makes the directory, and removes those of ended servers below base.
func (j *jobs) prepare() error {
	if j.base == "" {
		return nil
	}
	if err := os.MkdirAll(j.base, 0o700); err != nil {
		return fmt.Errorf("directory of exports: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(j.base, "jobs-*"))
	if err != nil {
		return err
	}
	for _, old := range left {
		removeLeft(old)
	}
	return j.open()
}

// removeLeft removes the directory of an ended server, whose lock is free.
func removeLeft(dir string) {
	if f, err := lockDir(dir); err == nil {
		_ = os.RemoveAll(dir) // the next start tries again
		_ = f.Close()
	}
}

func lockDir(dir string) (*os.File, error) {
	f, err := regular.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (j *jobs) open() (err error) {
	if j.dir, err = os.MkdirTemp(j.base, "jobs-"); err != nil {
		return err
	}
	j.lock, err = lockDir(j.dir)
	return err
}

// close removes everything. The worker has ended.
func (j *jobs) close() error {
	if j.dir == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(j.dir), j.lock.Close())
}

func (j *jobs) file(id string) string { return filepath.Join(j.dir, id) }

// add queues a job.
func (j *jobs) add(one *job) (Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	j.forget(now)
	owned := 0
	for _, other := range j.all {
		if other.owner == one.owner {
			owned++
		}
	}
	if len(j.all) >= maxJobs || owned >= maxJobsOf {
		return Job{}, later(429, "too-many", "there are too many exports", "end one that you do not need (DELETE), or wait until it is forgotten", time.Minute)
	}
	one.ID, one.State, one.Created = newID(), Queued, now
	j.all = append(j.all, one)
	select {
	case j.wake <- struct{}{}:
	default: // it was signalled already
	}
	return one.Job, nil
}

// forget removes expired jobs. j.mu is held.
func (j *jobs) forget(now time.Time) {
	j.all = slices.DeleteFunc(j.all, func(one *job) bool {
		over := !one.Expires.IsZero() && now.After(one.Expires)
		if over {
			_ = os.Remove(j.file(one.ID)) // the directory goes at the end
		}
		return over
	})
}

// of returns the jobs of an owner, oldest first.
func (j *jobs) of(owner string) []Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(j.now())
	list := []Job{}
	for _, one := range j.all {
		if one.owner == owner {
			list = append(list, one.Job)
		}
	}
	return list
}

// find returns an owner's job; j.mu is held.
func (j *jobs) find(owner, id string) *job {
	i := slices.IndexFunc(j.all, func(one *job) bool { return one.owner == owner && one.ID == id })
	if i < 0 {
		return nil
	}
	return j.all[i]
}

func errNoJob() *access.Problem {
	return access.NewProblem(404, "no-export", "there is no such export", "GET /api/v1/exports lists yours; they are forgotten an hour after their end")
}

// get returns an owner's job.
func (j *jobs) get(owner, id string) (Job, Export, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(j.now())
	one := j.find(owner, id)
	if one == nil {
		return Job{}, Export{}, errNoJob()
	}
	return one.Job, one.export, nil
}

// end stops an owner's job and removes its file.
func (j *jobs) end(owner, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.find(owner, id)
	if one == nil {
		return errNoJob()
	}
	j.all = slices.DeleteFunc(j.all, func(other *job) bool { return other == one })
	one.gone = true
	if one.cancel != nil {
		one.cancel()
		return nil // the worker removes the file
	}
	err := os.Remove(j.file(id))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

// next starts the oldest queued job, and returns nil if there is none.
func (j *jobs) next(cancel context.CancelFunc) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(j.now())
	i := slices.IndexFunc(j.all, func(one *job) bool { return one.State == Queued })
	if i < 0 {
		return nil
	}
	j.all[i].State, j.all[i].cancel = Running, cancel
	return j.all[i]
}

// work is the worker.
func (j *jobs) work(ctx context.Context) {
	tick := time.NewTicker(time.Minute) // for expired jobs
	defer tick.Stop()
	for {
		one, cancel := context.WithTimeout(ctx, jobFor)
		if next := j.next(cancel); next != nil {
			j.run(one, next)
			cancel()
			continue
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-tick.C:
		}
	}
}

// run runs one job and records its outcome.
func (j *jobs) run(ctx context.Context, one *job) {
	err := j.markers.read(ctx, j.source, func(src Source) error { return j.write(ctx, src, one) })
	j.mu.Lock()
	defer j.mu.Unlock()
	one.cancel = nil
	now := j.now()
	one.Ended, one.Expires, one.State = &now, now.Add(keepJob), Done
	if err != nil {
		p := problemOf(err)
		one.State, one.Detail, one.Hint = Failed, p.Detail, p.Hint
		if !one.gone {
			j.log.Warn("an export failed", "id", one.ID, "err", err)
		}
	}
	if err != nil || one.gone {
		_ = os.Remove(j.file(one.ID)) // the directory goes at the end
	}
}

// write writes the job's file.
func (j *jobs) write(ctx context.Context, src Source, one *job) error {
	f, err := regular.OpenFile(j.file(one.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = one.export.Write(ctx, &boundedFile{f: f, jobs: j, job: one}, src, one.filter, one.runs)
	if err == nil {
		err = ctx.Err()
	}
	return errors.Join(err, f.Close())
}

// boundedFile is a job's file with a maximum size.
type boundedFile struct {
	f    io.Writer
	jobs *jobs
	job  *job
}

// Write implements io.Writer.
func (b *boundedFile) Write(p []byte) (int, error) {
	b.jobs.mu.Lock()
	fits := b.job.Bytes+int64(len(p)) <= b.jobs.most
	if fits {
		b.job.Bytes += int64(len(p))
	}
	gone := b.job.gone
	b.jobs.mu.Unlock()
	if gone {
		return 0, context.Canceled
	}
	if !fits {
		return 0, access.NewProblem(413, "too-big", fmt.Sprintf("the export is bigger than %d bytes", b.jobs.most), "choose fewer runs or kinds, or export to a sink with custody export")
	}
	return b.f.Write(p)
}
