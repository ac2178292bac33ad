// Package serve implements the commands that run servers. "bourse serve" runs the
// servers of a host, and has flags and a validated configuration for each role. "bourse
// dev" runs a cluster on one host. "bourse supervise" runs a few programs without any
// server.
package serve

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// Roles contains the functions that run the different kinds of servers. cmd/bourse
// implements them. Each function returns once ctx is done and everything that it
// started has stopped.
type Roles struct {
	Worker func(ctx context.Context, c WorkerConfig) error
	Broker func(ctx context.Context, c BrokerConfig) error
	Proxy  func(ctx context.Context, c ProxyConfig) error
	NATS   func(ctx context.Context, c NATSServerConfig) error
}

// New returns the "serve" commands.
func New(s *cli.Shell, r Roles) *cobra.Command {
	return newHost(s, cli.Noun("serve", "", newWorker(s, r), newBroker(s, r), newProxy(s, r), newNATS(s, r)))
}
