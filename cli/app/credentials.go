package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewCredentials returns the "credentials" commands.
func NewCredentials(s *cli.Shell) *cobra.Command {
	c := cli.Noun("credentials", "Create and replace a cluster's CA, certificates, keys and tokens", newInit(s), newCert(s), newIssuer(s), newRotate(s), newToken(s))
	c.Aliases = []string{"credential"}
	return c
}
