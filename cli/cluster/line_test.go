package cluster

import (
	"testing"

	"github.com/bourse-dev/bourse/cli/clitest"
)

var line = clitest.Of(NewWorker, NewMember, NewOpen, NewPolicy, NewProxy, NewRegion, NewView)

func TestMain(m *testing.M) { clitest.InUTC(m) }
