// Command coredns serves the names of services and pods inside a twin.
//
// It is upstream CoreDNS with five plugins. The full build links every cloud's SDK and takes
// four times as long.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a query passes the plugins: the cache must stand before the lookup.
	dnsserver.Directives = []string{"errors", "health", "ready", "cache", "kubernetes"}
	coremain.Run()
}
