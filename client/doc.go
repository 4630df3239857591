// Package client uses the sandboxes of a Custody service from programs.
//
//	c, err := client.New("https://custody.example:8333", os.Getenv("CUSTODY_TOKEN"))
//	s, err := c.Create(ctx, client.SandboxRequest{Project: "shop"})
//	defer s.Destroy(ctx)
//	p, err := s.Start(ctx, client.ProcessRequest{Shell: "make test"})
//	_, err = io.Copy(os.Stdout, p.Output(ctx, client.Stdout))
//	exit, err := p.Wait(ctx)
//
// Its requests are those of the API that docs/serve.md describes. Everything that a sandbox does is in the service's record.
package client
