package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewCredentials returns the commands of credentials.
func NewCredentials(s *cli.Shell) *cobra.Command {
	c := cli.Noun("credentials", "Make the CA, certificates, key and tokens of a cluster", newInit(s), newCert(s), newToken(s))
	c.Aliases = []string{"credential"}
	return c
}
