package serve

import (
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// RoleNATS is what "bourse serve nats" is in a ready file.
const RoleNATS bourse.Role = "nats"

// NATSServerConfig is the whole configuration of "bourse serve nats".
type NATSServerConfig struct {
	Listen    netip.AddrPort // on loopback; port 0 means any
	Cluster   string         // whose servers are let in; "": all on this host
	ReadyFile string         // as ServerConfig has it
	LifeLine  bool
}

// newNATS is for "bourse dev --fabric nats": clusters have NATS servers of
// their own, with all that those can be configured for.
func newNATS(s *cli.Shell, r Roles) *cobra.Command {
	var listen string
	var config NATSServerConfig
	c := &cobra.Command{
		Use:    "nats",
		Short:  "Run a NATS server on loopback, for trying things out",
		Long:   "Run a NATS server on loopback, for trying things out. It stores nothing, and lets in the servers of --cluster that run as this user.",
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if config.Listen, err = cli.ParseListen(listen); err != nil {
				return cli.FlagError("--listen", err)
			}
			if !config.Listen.Addr().IsLoopback() {
				return bourse.Errorf(bourse.CodeInvalid, "--listen %s: it speaks in the clear, so it listens on loopback only", listen)
			}
			ctx, stop := s.Lifetime(c.Context(), config.LifeLine)
			defer stop()
			return r.NATS(ctx, config)
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:4222", "`IP:PORT` for clients; port 0 means any free one")
	flags.StringVar(&config.Cluster, "cluster", "", "`name` of the cluster whose servers are let in (default: all on this host)")
	flags.StringVar(&config.ReadyFile, "ready-file", "", "write {id, role, api, pid} as JSON to this `file` once ready")
	bindLifeLine(flags, &config.LifeLine)
	return c
}

func bindLifeLine(flags *pflag.FlagSet, on *bool) {
	flags.BoolVar(on, "life-line", false, "end when standard input ends")
	_ = flags.MarkHidden("life-line") // fails for an unknown flag only
}
