// Command coredns is CoreDNS with the few plugins that a benchmark compares with
// Custody's resolver. It is a separate module and no part of Custody.
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

// main runs CoreDNS with the Corefile. The plugins are in the order of plugin.cfg.
func main() {
	dnsserver.Directives = []string{"bind", "errors", "cache", "template", "forward"}
	coremain.Run()
}
