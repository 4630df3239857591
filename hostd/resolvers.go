package hostd

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/worker"
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

// addresses returns those of DNS servers.
func addresses(texts []string) (list []netip.AddrPort, err error) {
	servers, err := worker.ServersOf(texts)
	for _, s := range servers {
		list = append(list, s.Addr)
	}
	return list, err
}

// checkResolvers returns an error unless all are servers of a project.
func checkResolvers(asked []string, p project.File) error {
	if len(asked) == 0 {
		return nil
	}
	servers, err := Resolvers(p)
	if err != nil {
		return err
	}
	for _, text := range asked {
		if !slices.ContainsFunc(servers, func(s upstream.Server) bool { return s.String() == text }) {
			return fmt.Errorf("the DNS server %s is not one of the project", text)
		}
	}
	return nil
}
