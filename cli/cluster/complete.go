package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// complete completes the first argument from the workers.
func complete(s *cli.Shell) cobra.CompletionFunc { return cli.Complete(s.Workers) }
