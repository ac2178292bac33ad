package serve

import (
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// RoleNATS is the role of "bourse serve nats" in a ready file.
const RoleNATS bourse.Role = "nats"

// NATSServerConfig is the configuration of "bourse serve nats".
type NATSServerConfig struct {
	Listen    netip.AddrPort // on loopback; port 0 means any free port
	Cluster   string         // only servers of this cluster, run by the same user, may connect; "" means any program on this host
	ReadyFile string         // see ServerConfig.ReadyFile
	LifeLine  bool
}

// newNATS returns the hidden command that "bourse dev --fabric nats" runs. Real
// clusters use their own NATS servers, because this command supports only a few
// settings.
func newNATS(s *cli.Shell, r Roles) *cobra.Command {
	var listen string
	var config NATSServerConfig
	c := &cobra.Command{
		Use:   "nats",
		Short: "Run a NATS server on loopback for experiments",
		Long: `Run a NATS server on loopback for experiments. It stores nothing. With --cluster, it
accepts only servers of that cluster that run as the same user. Otherwise, any program
on this host can connect.`,
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if config.Listen, err = cli.ParseListen(listen); err != nil {
				return cli.FlagError("--listen", err)
			}
			if !config.Listen.Addr().IsLoopback() {
				return bourse.Errorf(bourse.CodeInvalid, "--listen %s: the server does not encrypt, so it can only listen on loopback", listen)
			}
			ctx, stop := s.Lifetime(c.Context(), config.LifeLine)
			defer stop()
			return r.NATS(ctx, config)
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:4222", "address for clients, `IP:PORT`; port 0 means any free port")
	flags.StringVar(&config.Cluster, "cluster", "", "`name` of the cluster whose servers may connect (default: any program on this host may connect)")
	flags.StringVar(&config.ReadyFile, "ready-file", "", "`file` to write {id, role, api, pid} to as JSON once the server is ready")
	bindLifeLine(flags, &config.LifeLine)
	return c
}

func bindLifeLine(flags *pflag.FlagSet, on *bool) {
	flags.BoolVar(on, "life-line", false, "stop when standard input is closed")
	_ = flags.MarkHidden("life-line") // fails for an unknown flag only
}
