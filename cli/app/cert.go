package app

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

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
		Short: "Issue a server's certificate and key",
		Long: `Issue a server's certificate and its key, and write both to NAME.pem. NAME must be the
server's --name. If --dir contains issuer.pem, as on the hosts of brokers from "bourse
init", the certificate is valid for a week, and the server renews it. Otherwise, it is
signed by the CA that "bourse credentials init" created in --dir, and valid for one
year. A scraper's certificate, such as Prometheus's, only gives access to the servers'
metrics. Only the CA can sign it.

Without --role, the certificate is for a server outside the cluster, such as NATS. It
is signed by the CA, and valid for one year and for the names in --host. The cluster's
servers do not accept it.`,
		Example: `  bourse credentials cert --role broker --host api.example.com,10.0.0.1 broker-1
  bourse credentials cert --role worker gru-1
  bourse credentials cert --role proxy edge-1
  bourse credentials cert --role scraper prometheus
  bourse credentials cert --host nats.example.com nats-1
  bourse credentials cert --dir /etc/bourse --role worker gru-7   # to replace an expired one`,
		Args: cli.Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			who := admission.Identity{ID: bourse.WorkerID(args[0]), Role: bourse.Role(role)}
			if err := check(who, hosts); err != nil {
				return err
			}
			signer, err := readSigner(dir, who.Role, s.Now())
			if err != nil {
				return err
			}
			what, valid := "the certificate of "+args[0], "one year"
			if signer.IsIssuer() {
				valid = "a week"
			}
			var pair admission.Pair
			if role == "" {
				pair, err = signer.IssueOther(args[0], hosts, s.Now())
			} else {
				what = "the certificate of " + role + " " + args[0]
				pair, err = signer.Issue(who, hosts, s.Now())
			}
			if err != nil {
				return err
			}
			files := []file{
				{Name: args[0] + ".pem", For: what + ", valid for " + valid + ", and its key", data: pair.PEM(), secret: true},
			}
			if err := create(dir, files); err != nil {
				return err
			}
			return show(s, files)
		},
	}
	c.Flags().StringVar(&role, "role", "", "`role` of the server: broker, worker, proxy or scraper")
	c.Flags().StringSliceVar(&hosts, "host", nil, "`names` and addresses that clients use, separated by commas; workers and proxies need none")
	c.Flags().StringVar(&dir, "dir", ".", "`directory` with the issuer or the CA, to which the file is written")
	cli.CompleteFixed(c, "role", string(bourse.RoleBroker), string(bourse.RoleWorker), string(bourse.RoleProxy), string(bourse.RoleScraper))
	return c
}

// check rejects arguments that would result in a useless certificate.
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
			return bourse.Errorf(bourse.CodeInvalid, "a broker needs --host, the name or address that its clients use")
		}
	case "":
		if len(hosts) == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "use --role broker, worker or proxy, or --host for a server outside the cluster, such as NATS")
		}
	default:
		return bourse.Errorf(bourse.CodeInvalid, "--role %s: use broker, worker, proxy or scraper", bourse.Quoted(string(who.Role)))
	}
	return nil
}

// readSigner reads the CA that signs certificates for the given role. If dir contains an
// issuer, the issuer signs the certificates of the cluster's servers, and the root CA signs
// all others. The root CA signs these because an issuer's certificates expire after a week,
// and only the cluster's servers renew their certificates automatically.
func readSigner(dir string, role bourse.Role, now time.Time) (*admission.CA, error) {
	pair, err := os.ReadFile(admission.Dir(dir).Issuer())
	if errors.Is(err, fs.ErrNotExist) || !slices.Contains(bourse.ServerRoles(), role) {
		return readCA(dir)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the issuer: %w", err)
	}
	issuer, err := admission.ParseCA(admission.Pair{Cert: pair, Key: pair})
	if err == nil && now.After(issuer.Expires()) {
		err = cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the issuer in %s has expired", dir), "bourse credentials issuer, where the CA's key is")
	}
	return issuer, err
}

// readCA reads the CA that "credentials init" created.
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
