package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newRotate(s *cli.Shell) *cobra.Command {
	var wait time.Duration
	var dir string
	var keep bool
	c := &cobra.Command{
		Use:   "rotate gossip|secrets|ca",
		Short: "Replace a shared key on all servers that have it",
		Long: `Replace the key that encrypts the membership (gossip.key, on all servers), the key that
encrypts the secrets of apps (secrets.key, on all brokers), or the CA that certifies the
servers (ca.pem, on all servers), while the servers run. First every server receives the
new key, then every server uses it, then every server removes the old key. Each step
begins once all servers have completed the previous one, so no request fails.

If a server does not answer, the command waits for it. If the command gives up or is
interrupted, repeat it: it continues the rotation that has begun. If a server will not
return, remove it first (bourse member remove).

The old secrets key stays in use until every secret has been set again. After a theft,
set new values, because whoever has the key may have read the old ones. Repeat the
command afterwards to remove the old key.

The new CA is created in --dir, unless that directory contains one. Its key stays there:
store it in a safe place, away from the servers. You must give clients, scrapers and NATS
servers the new CA and certificates yourself. With --keep-old, the servers accept the
old CA, too, until the command is repeated without this flag.`,
		Example: `  bourse credentials rotate gossip
  bourse credentials rotate gossip --wait 10m   # while a host reboots
  bourse credentials rotate secrets
  bourse credentials rotate ca --dir /media/usb/bourse`,
		Args:      cli.Exactly(1),
		ValidArgs: []cobra.Completion{string(machinesapi.KeyGossip), string(machinesapi.KeySecrets), string(machinesapi.KeyCA)},
		RunE: func(c *cobra.Command, args []string) error {
			r := rotation{shell: s, key: machinesapi.SharedKey(args[0]), end: s.Now().Add(wait), in: machinesapi.Rotate{KeepOld: keep}, dir: dir}
			if r.key != machinesapi.KeyCA && c.Flags().Changed("dir") {
				return bourse.Errorf(bourse.CodeInvalid, "--dir is only for a new CA")
			}
			return r.run(c)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 30*time.Second, "`time` to wait for servers that do not answer")
	c.Flags().StringVar(&dir, "dir", "new-ca", "`directory` with the new CA")
	c.Flags().BoolVar(&keep, "keep-old", false, "do not remove the old key")
	return c
}

// rotation is one invocation of the "credentials rotate" command.
type rotation struct {
	shell *cli.Shell
	key   machinesapi.SharedKey
	in    machinesapi.Rotate
	dir   string    // directory with the new CA
	end   time.Time // time at which the command stops waiting for servers
}

func (r *rotation) run(c *cobra.Command) error {
	if r.key == machinesapi.KeyCA {
		if err := r.prepareCA(); err != nil {
			return err
		}
	}
	again := cli.Backoff{}
	r.in.Start = true
	for noted := machinesapi.RotationStep(""); ; {
		out, err := r.shell.Client().Operator().Rotate(c.Context(), r.key, r.in)
		if err == nil && r.key == machinesapi.KeyCA {
			err = r.trustBoth()
		}
		if err != nil {
			return err
		}
		missing := missingServers(&out)
		if len(missing) == 0 || noted != out.Step {
			if err := r.print(&out, len(missing)); err != nil {
				return err
			}
		}
		switch {
		case out.Done:
			return r.finish()
		case r.in.KeepOld && out.Step == machinesapi.RotationUse && len(missing) == 0:
			r.shell.Note("the new key is in use, and the old one is still valid: repeat the command without --keep-old to remove it")
			return nil
		case out.Blocked != "":
			return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the new key is in use, but the old one cannot be removed yet: %s", out.Blocked),
				"set these secrets again (bourse secrets set), then repeat this command")
		case len(missing) == 0:
			again = cli.Backoff{}
		case r.shell.Now().After(r.end):
			return r.incompleteError(&out, missing)
		default:
			noted = out.Step
			if err := again.Wait(c.Context()); err != nil {
				return err
			}
		}
		r.in.Start = out.Step == machinesapi.RotationCheck // the rotation does not begin until all servers have answered
	}
}

// prepareCA reads or creates the new CA and its issuer, and makes this command trust the new CA.
func (r *rotation) prepareCA() error {
	ca, issuer, err := r.newCA()
	if err != nil {
		return err
	}
	r.in.CA, r.in.Issuer = string(ca.Pair().Cert), string(issuer)
	r.shell.TrustAlso(r.in.CA)
	return nil
}

// trustBoth adds the new CA to the CAs that the context trusts, because brokers will soon use
// certificates from the new CA.
func (r *rotation) trustBoth() error {
	_, err := r.shell.ChangeCA(func(old string) string {
		if strings.Contains(old, r.in.CA) {
			return old
		}
		return strings.TrimSuffix(old, "\n") + "\n" + r.in.CA
	})
	return err
}

// newCA returns the CA in r.dir, and the certificate and key of its issuer in PEM. If r.dir
// contains no CA, newCA creates a CA and an issuer there.
func (r *rotation) newCA() (*admission.CA, []byte, error) {
	now := r.shell.Now()
	if _, err := os.Stat(filepath.Join(r.dir, caFile)); errors.Is(err, fs.ErrNotExist) {
		ca, err := admission.NewCA("bourse", now)
		if err != nil {
			return nil, nil, err
		}
		issuer, err := ca.NewIssuer(now)
		if err != nil {
			return nil, nil, err
		}
		return ca, issuer.Pair().PEM(), create(r.dir, []file{
			{Name: caFile, data: ca.Pair().Cert},
			{Name: caKeyFile, data: ca.Pair().Key, secret: true},
			{Name: filepath.Base(admission.Dir(r.dir).Issuer()), data: issuer.Pair().PEM(), secret: true},
		})
	}
	ca, err := readCA(r.dir)
	if err != nil {
		return nil, nil, err
	}
	issuer, err := os.ReadFile(admission.Dir(r.dir).Issuer())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%s contains no issuer", r.dir), "bourse credentials issuer --dir "+r.dir, "--dir with another directory, in which a new CA is created")
	}
	return ca, issuer, err
}

// stepTexts describes the steps in the order in which they are carried out.
var stepTexts = map[machinesapi.RotationStep]string{
	machinesapi.RotationCheck:  "check that all servers answer",
	machinesapi.RotationAdd:    "distribute the new key",
	machinesapi.RotationUse:    "use the new key",
	machinesapi.RotationRemove: "remove the old key",
}

func (r *rotation) print(out *machinesapi.Rotation, missing int) error {
	if r.shell.JSON {
		return r.shell.PrintLine(out)
	}
	_, err := fmt.Fprintf(r.shell.Out, "%-30s  %d of %s\n", stepTexts[out.Step], len(out.Servers)-missing, cli.Count(len(out.Servers), "server"))
	return err
}

func (r *rotation) finish() error {
	what := map[machinesapi.SharedKey]string{machinesapi.KeyGossip: "the gossip key", machinesapi.KeySecrets: "the secrets key", machinesapi.KeyCA: "the CA"}[r.key]
	if !r.shell.JSON {
		if _, err := fmt.Fprintf(r.shell.Out, "%s was replaced\n", what); err != nil {
			return err
		}
	}
	if r.key != machinesapi.KeyCA {
		return nil
	}
	stored, err := r.shell.ChangeCA(func(string) string { return r.in.CA })
	clients := "clients need the new CA (--ca, BOURSE_CA, bourse login)"
	if stored {
		clients = "other " + clients
	}
	r.shell.Note(fmt.Sprintf("next: store %s in a safe place, and delete the old ca.key; %s", cli.Clean(filepath.Join(r.dir, caKeyFile)), clients))
	return err
}

// incompleteError returns the error for a step that some servers have not completed.
func (r *rotation) incompleteError(out *machinesapi.Rotation, missing []machinesapi.RotationServer) error {
	const limit = 5
	for _, m := range missing[:min(limit, len(missing))] {
		r.shell.Note(fmt.Sprintf("%s: %s", cli.Clean(string(m.ID)), cli.Clean(m.Error)))
	}
	err := bourse.Errorf(bourse.CodeUnavailable, "the rotation stopped at the step %q, which %s did not complete", stepTexts[out.Step], cli.Count(len(missing), "server"))
	return cli.Hint(err, "repeat the command once they are running: it continues where it stopped", "bourse member remove, for a server that will not come back")
}

func missingServers(out *machinesapi.Rotation) (list []machinesapi.RotationServer) {
	for _, s := range out.Servers {
		if !s.OK {
			list = append(list, s)
		}
	}
	return list
}
