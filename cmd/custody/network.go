package main

import (
	"context"
	"fmt"
	"io"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/project"
)

// hostResolvers names the servers that are asked where the project's file names none.
const hostResolvers = "/etc/resolv.conf"

// wayOut makes the sandbox's way out through the fence that was prepared. It
// exists before the record, and says nothing before its Begin.
func (j *job) wayOut(run string) (*egress.Network, error) {
	servers, err := resolvers(j.project)
	if err != nil {
		return nil, err
	}
	return j.prepared.Network(egress.Options{
		Run: run, Policy: j.policy, Resolvers: servers, Recorder: laterRecord{j}, Notice: j.say,
		Credentials: j.issuer, Redactor: j.redactor, Tokens: j.project.Limits.LLMTokens,
	})
}

// close complains of what cannot be removed: a run that is over is not undone by it.
func (a *app) close(c io.Closer) {
	if err := c.Close(); err != nil {
		a.complain(err)
	}
}

// laterRecord is the run's record, which is made after the network.
type laterRecord struct{ *job }

func (l laterRecord) Record(ctx context.Context, ev audit.Event) (uint64, error) {
	return l.record.Record(ctx, ev)
}

func (l laterRecord) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	return l.record.Post(ctx, ev)
}

func (l laterRecord) Sync(ctx context.Context, seq uint64) error { return l.record.Sync(ctx, seq) }

// resolvers are who is asked for the addresses of names that the policy allows.
func resolvers(p project.File) ([]upstream.Server, error) {
	var servers []upstream.Server
	for _, s := range p.Resolvers {
		server, err := upstream.ParseServer(s)
		if err != nil {
			return nil, fmt.Errorf("resolvers: %w", err)
		}
		servers = append(servers, server)
	}
	if len(servers) > 0 || len(p.Egress) == 0 {
		return servers, nil
	}
	servers, err := upstream.ResolvConf(hostResolvers)
	if err != nil {
		return nil, fmt.Errorf("no DNS resolver found: set resolvers in %s: %w", project.Name, err)
	}
	return servers, nil
}

// setPolicy puts the rules of a project's file into force in the run.
func (j *job) setPolicy(ctx context.Context, file []byte) (home.PolicyChange, error) {
	p, err := project.Parse("the new policy", file)
	if err != nil {
		return home.PolicyChange{}, err
	}
	if err := needAllowed(j.home, &p, "the new policy"); err != nil {
		return home.PolicyChange{}, err
	}
	policy, err := p.Policy()
	if err != nil {
		return home.PolicyChange{}, err
	}
	c, err := j.network.Change(ctx, policy)
	if err != nil {
		return home.PolicyChange{}, err
	}
	j.say(fmt.Sprintf("policy generation %d (%s) is in force; it ended %d flows", c.Generation, c.Digest, c.Ended))
	return home.PolicyChange{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous, Ended: c.Ended}, nil
}
