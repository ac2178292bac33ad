package app

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

func newIssuer(s *cli.Shell) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "issuer",
		Short: "Create the certificate and key that brokers use to admit hosts",
		Long: `Create an issuer below the CA in the same directory, and write its certificate and key
to issuer.pem, replacing an older one. A broker with this file admits hosts that join,
and renews certificates. It is valid for one year. Certificates that the older issuer
has signed remain valid, and brokers use the new file without a restart.`,
		Example: `  bourse credentials issuer --dir /media/usb/bourse`,
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ca, err := readCA(dir)
			if err != nil {
				return err
			}
			issuer, err := ca.NewIssuer(s.Now())
			if err != nil {
				return err
			}
			path := filepath.Clean(admission.Dir(dir).Issuer())
			if err := wholefile.Write(path, issuer.Pair().PEM(), 0o600); err != nil {
				return bourse.Errorf(bourse.CodeInvalid, "write the issuer: %w", err)
			}
			return show(s, []file{{Name: path, For: "every broker that admits hosts; valid for one year"}})
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "`directory` with the CA, to which the file is written")
	return c
}
