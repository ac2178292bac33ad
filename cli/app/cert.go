package app

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

func newCert(s *cli.Shell) *cobra.Command {
	var role, dir string
	var hosts []string
	c := &cobra.Command{
		Use:   "cert NAME",
		Short: "Make the certificate of a server, and its key",
		Long: `Make the certificate of a server, valid for a year, and its key, both in NAME.pem.
The CA of "bourse credentials init" in the same directory signs it.
NAME is what the server's --name says. That of a scraper, such as Prometheus,
reads the servers' metrics and is good for nothing else.

Without --role it is that of a server which is no part of the cluster, such as
NATS: it proves the names of --host, and no server lets it in.`,
		Example: `  bourse credentials cert --role broker --host api.example.com,10.0.0.1 broker-1
  bourse credentials cert --role worker gru-1
  bourse credentials cert --role proxy edge-1
  bourse credentials cert --role scraper prometheus
  bourse credentials cert --host nats.example.com nats-1`,
		Args: cli.Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			who := admission.Identity{ID: bourse.WorkerID(args[0]), Role: bourse.Role(role)}
			if err := check(who, hosts); err != nil {
				return err
			}
			ca, err := readCA(dir)
			if err != nil {
				return err
			}
			what := "the certificate of " + args[0]
			var pair admission.Pair
			if role == "" {
				pair, err = ca.IssueOther(args[0], hosts, s.Now())
			} else {
				what = "the certificate of " + role + " " + args[0]
				pair, err = ca.Issue(who, hosts, s.Now())
			}
			if err != nil {
				return err
			}
			files := []file{
				{Name: args[0] + ".pem", For: what + ", for a year, and its key", data: pair.PEM(), secret: true},
			}
			if err := create(dir, files); err != nil {
				return err
			}
			return show(s, files)
		},
	}
	c.Flags().StringVar(&role, "role", "", "`role` of the server: broker, worker or proxy; or scraper")
	c.Flags().StringSliceVar(&hosts, "host", nil, "`names` and addresses by which clients reach it, comma separated; workers and proxies need none")
	c.Flags().StringVar(&dir, "dir", ".", "`directory` with the CA, and for the files")
	cli.CompleteFixed(c, "role", string(bourse.RoleBroker), string(bourse.RoleWorker), string(bourse.RoleProxy), string(bourse.RoleScraper))
	return c
}

// check refuses what would make a certificate of no use.
func check(who admission.Identity, hosts []string) error {
	if err := who.ID.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "name %s: use 1 to 63 of a-z, 0-9 and \"-\", beginning and ending with a letter or digit", bourse.Quoted(string(who.ID)))
	}
	for _, host := range hosts {
		if net.ParseIP(host) == nil {
			if err := admission.CheckName(host); err != nil {
				return cli.FlagError("--host", err)
			}
		}
	}
	switch who.Role {
	case bourse.RoleWorker, bourse.RoleProxy, bourse.RoleScraper:
	case bourse.RoleBroker:
		if len(hosts) == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "a broker needs --host: the name or address by which its clients reach it")
		}
	case "":
		if len(hosts) == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "give --role broker, worker or proxy; or --host for a server that is no part of the cluster, such as NATS")
		}
	default:
		return bourse.Errorf(bourse.CodeInvalid, "--role %s: use broker, worker, proxy or scraper", bourse.Quoted(string(who.Role)))
	}
	return nil
}

// readCA reads what init has made.
func readCA(dir string) (*admission.CA, error) {
	cert, err := os.ReadFile(filepath.Join(dir, caFile))
	key, keyErr := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err = errors.Join(err, keyErr); errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%s contains no CA with its key", dir), "bourse credentials init, to create a CA", "--dir with the directory of a CA")
	} else if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the CA: %w", err)
	}
	return admission.ParseCA(admission.Pair{Cert: cert, Key: key})
}
