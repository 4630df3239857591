//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"iter"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

type searchCmd struct {
	Hash   string   `placeholder:"SHA256" help:"A file with this content."`
	Path   string   `placeholder:"PATH" help:"Exactly this file or program."`
	Host   string   `placeholder:"NAME" help:"Exactly this host name or address."`
	Secret string   `placeholder:"NAME" help:"A credential of this name."`
	Rule   string   `placeholder:"RULE" help:"A finding of this rule."`
	Text   string   `placeholder:"TEXT" help:"Anywhere in a record's JSON, such as in an argv. It reads all records that match the other flags."`
	Kind   []string `short:"k" placeholder:"KIND,..." help:"Only records of these kinds."`
	From   string   `placeholder:"TIME" help:"Only records of this time or later: 2026-11-03, 2026-11-03 14:32, RFC 3339; in UTC, unless a zone follows."`
	Until  string   `placeholder:"TIME" help:"Only records before this time; a date includes that day."`
	Limit  int      `short:"n" default:"100" help:"Show at most this many, the newest; 0 for all."`
	Runs   bool     `help:"One line for each run, with the number of records found in it, the first and the last. --limit counts runs."`
	JSON   bool     `name:"json" help:"The records' exact bytes, one per line; a marked one is an object with its mark. With --runs: one JSON object per run."`
	command.ZoneFlag
}

func (c searchCmd) Run(a *app) error {
	q := store.Search{Hash: c.Hash, Path: c.Path, Host: c.Host, Secret: c.Secret, Rule: c.Rule, Text: c.Text, Limit: c.Limit}
	if c.Runs {
		q.Limit = 0
	}
	zone, err := c.Location()
	if err != nil {
		return err
	}
	if q.Kinds, err = command.ParseKinds(c.Kind); err != nil {
		return err
	}
	if q.From, q.To, err = c.Span(c.From, c.Until); err != nil {
		return err
	}
	if c.Hash+c.Path+c.Host+c.Secret+c.Rule+c.Text == "" && q.From.IsZero() {
		return command.Usage(errors.New("give a search term: --hash, --path, --host, --secret, --rule, --text or --from"))
	}
	if c.Limit < 0 {
		return command.Usage(fmt.Errorf("--limit %d: want 0 or more", c.Limit))
	}
	h, st, err := a.env().Reader(a.ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	opt, err := a.env().Marking(a.ctx, h, st)
	if err != nil {
		return err
	}
	opt.Zone = zone
	return c.print(a, st.Search(a.ctx, q), opt)
}

const noHits = "no record matches"

func (c searchCmd) print(a *app, hits iter.Seq2[store.Row, error], opt replay.Options) error {
	if c.Runs {
		return c.printRuns(a, hits, opt)
	}
	if c.JSON {
		out := bufio.NewWriter(a.stdout)
		return errors.Join(replay.NDJSON(out, hits, opt), out.Flush())
	}
	n, err := replay.Hits(a.stdout, hits, opt)
	if err == nil && n == 0 {
		a.Say(noHits)
	}
	return err
}

func (c searchCmd) printRuns(a *app, hits iter.Seq2[store.Row, error], opt replay.Options) error {
	runs, err := replay.HitRuns(hits, opt)
	if err != nil {
		return err
	}
	if c.Limit > 0 && len(runs) > c.Limit {
		a.Say(fmt.Sprintf("%d runs have such records; the %d with the newest are shown: --limit 0 shows all", len(runs), c.Limit))
		runs = runs[:c.Limit]
	}
	switch {
	case c.JSON:
		return console.WriteJSONLines(a.stdout, runs)
	case len(runs) == 0:
		a.Say(noHits)
		return nil
	}
	return replay.HitRunTable(a.stdout, runs, opt)
}
