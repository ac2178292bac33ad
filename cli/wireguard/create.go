package wireguard

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// created is the JSON output of create.
type created struct {
	machinesapi.WireGuardPeer
	Config string `json:"config"` // for wg-quick; contains the private key
}

func newCreate(s *cli.Shell) *cobra.Command {
	var org, network, app, region, worker string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Print a WireGuard configuration for your laptop",
		Long: `Admit a laptop to one private network, and print a WireGuard configuration for
wg-quick or WireGuard's apps. It contains a private key that was generated here and
that no server knows. The laptop can then connect to machines of the network, on all
workers, by address and by name (shop.internal). Machines cannot connect to it.
The network is the one of the app, unless --network or --org names another.

The laptop connects to one worker, its entry, which forwards its packets. By
default, that is a worker that runs a machine of the network, if possible one with a
public address. The laptop must be able to reach the worker's UDP port for WireGuard.`,
		Example: `  umask 077 # so that only you can read the file
  bourse wireguard create laptop --app shop > bourse.conf
  bourse wireguard create laptop --org acme --network staging --region gru --ttl 24h > bourse.conf
  wg-quick up ./bourse.conf`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case ttl < time.Second:
				return bourse.Errorf(bourse.CodeInvalid, "--ttl %s: use 1s or more", ttl)
			case c.Flags().Changed("app") && (org != "" || network != ""):
				return bourse.Errorf(bourse.CodeInvalid, "use either --app, or --network and --org")
			}
			key, err := ecdh.X25519().GenerateKey(rand.Reader)
			if err != nil {
				return err
			}
			in := machinesapi.CreateWireGuardPeer{
				Name: args[0], App: bourse.AppName(app), Org: org, Network: network, Region: bourse.Region(region), Worker: bourse.WorkerID(worker),
				PublicKey: key.PublicKey().Bytes(),
			}
			if c.Flags().Changed("ttl") { // otherwise, the server limits it to the validity of the token
				in.TTL = bourse.Duration(ttl)
			}
			p, err := api(s).Create(c.Context(), in)
			if err != nil {
				return hintCreate(err)
			}
			if p.Settings == nil {
				return bourse.Errorf(bourse.CodeInternal, "the reply contains no settings for WireGuard")
			}
			text, err := configOf(&p, key.Bytes())
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(created{p, text})
			}
			if _, err := fmt.Fprint(s.Out, text); err != nil {
				return err
			}
			s.Note(fmt.Sprintf("%s may use network %s through worker %s for %s. The key is not shown again. To cut the laptop off: bourse wireguard remove %s",
				cli.Clean(p.Name), cli.Clean(networkOf(&p)), cli.Clean(string(p.Worker)), cli.Age(p.ExpiresAt.Sub(s.Now())), cli.Clean(p.ID)))
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&org, "org", "o", "", "`organization` of the network, without --app (default: that of your token, or personal)")
	flags.StringVar(&network, "network", "", "`name` of the private network, without --app (default: the organization's own)")
	flags.StringVarP(&region, "region", "r", "", "`region` of the worker to which the laptop connects (default: any)")
	flags.StringVar(&worker, "worker", "", "`worker` to which the laptop connects, and which sees its traffic (default: one that runs a machine of the network)")
	flags.DurationVar(&ttl, "ttl", 720*time.Hour, "`time` until the laptop is cut off, or earlier if your token expires")
	cli.CompleteFlag(c, "worker", s.Workers)
	s.CompleteRegions(c)
	s.BindApp(c, &app).Unless("org", "network")
	return c
}

// hintCreate adds a hint to a timeout error, because the laptop may have been admitted anyway.
func hintCreate(err error) error {
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, "bourse wireguard list")
	}
	return err
}

// configOf returns a laptop's configuration in the format of wg-quick. It returns CodeInternal if a value in the reply
// contains a line break, which could add a setting with a command for wg-quick to run.
func configOf(p *machinesapi.WireGuardPeer, key []byte) (string, error) {
	g := p.Settings
	var allowed []string
	for _, prefix := range g.AllowedIPs {
		allowed = append(allowed, prefix.String())
	}
	base64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`# %s in network %s, through worker %s, until %s
[Interface]
PrivateKey = %s
Address = %s/128
DNS = %s, internal
MTU = %d

[Peer]
PublicKey = %s
Endpoint = %s
AllowedIPs = %s
PersistentKeepalive = 25
`, cli.Clean(p.Name), cli.Clean(networkOf(p)), cli.Clean(string(p.Worker)), cli.At(p.ExpiresAt), base64(key), p.Address, g.DNS, g.MTU, base64(g.PublicKey), g.Endpoint, strings.Join(allowed, ", "))
	const lines = 12
	if strings.Count(text, "\n") != lines || strings.Contains(text, "\r") {
		return "", bourse.Errorf(bourse.CodeInternal, "the reply contains a line break")
	}
	return text, nil
}
