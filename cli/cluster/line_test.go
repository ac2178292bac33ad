package cluster

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
)

var line = clitest.Of(func(s *cli.Shell) *cobra.Command { return NewWorker(s, Stores{}) }, NewOpen, NewProxy, NewRegion, NewView)

func TestMain(m *testing.M) { clitest.InUTC(m) }
