// Command coredns is CoreDNS with the few plugins that Custody's resolver is
// measured against. It is a module of its own: nothing of it is part of Custody.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// main serves what the Corefile says. The order of plugins is that of plugin.cfg.
func main() {
	dnsserver.Directives = []string{"bind", "errors", "cache", "template", "forward"}
	coremain.Run()
}
