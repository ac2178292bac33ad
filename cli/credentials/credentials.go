// Package credentials has the commands that make what servers and clients of a
// cluster show one another: certificates, the membership's key, tokens. They
// write files, and ask no server.
package credentials

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of credentials.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("credentials", "Make the CA, certificates, key and tokens of a cluster", newInit(s), newCert(s), newToken(s))
	c.Aliases = []string{"credential"}
	return c
}
