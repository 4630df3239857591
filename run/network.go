package run

import (
	"fmt"

	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/project"
)

// hostResolvers names the DNS servers of the host, for projects that name none.
const hostResolvers = "/etc/resolv.conf"

// Resolvers returns the DNS servers that resolve the names of a project's policy.
func Resolvers(p project.File) ([]upstream.Server, error) {
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
