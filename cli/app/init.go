package app

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/seal"
)

// Names of a cluster's credential files.
const (
	caFile         = "ca.pem"
	caKeyFile      = "ca.key"
	gossipFile     = "gossip.key"
	tokensFile     = "tokens"
	secretsKeyFile = "secrets.key"
)

func newInit(s *cli.Shell) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "init",
		Short: "Create a cluster's CA, its keys and a first token",
		Long: `Create the credentials that a cluster's servers share: a CA, the key that encrypts
gossip between the members, the key that encrypts secrets, and a token file with one
token that permits everything. Existing files are never overwritten.`,
		Example: "  bourse credentials init",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ca, err := admission.NewCA("bourse", s.Now())
			if err != nil {
				return err
			}
			files := []file{
				{Name: caFile, For: "every server, and clients (--ca)", data: ca.Pair().Cert},
				{Name: caKeyFile, For: "issuing certificates; keep it off the servers", data: ca.Pair().Key, secret: true},
				{Name: gossipFile, For: "every server", data: admission.NewGossipKey(), secret: true},
				{Name: tokensFile, For: "every broker; its token permits everything", data: []byte(random(16) + " *\n"), secret: true},
				{Name: secretsKeyFile, For: "every broker; encrypts secrets", data: seal.Generate(), secret: true},
			}
			if err := create(dir, files); err != nil {
				return err
			}
			if err := show(s, files); err != nil || s.JSON {
				return err
			}
			s.Note("next: bourse credentials cert --role broker --host ADDRESS NAME, then the same with --role worker for each worker")
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "`directory` for the files")
	return c
}

// random returns n random bytes in hex.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return hex.EncodeToString(b)
}
