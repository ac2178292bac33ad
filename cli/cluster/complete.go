package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// complete completes a command's first argument with the ids of the cluster's workers.
func complete(s *cli.Shell) cobra.CompletionFunc { return cli.Complete(s.Workers) }
