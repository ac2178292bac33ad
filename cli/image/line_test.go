package image

import (
	"testing"

	"github.com/bourse-dev/bourse/cli/clitest"
)

var line = clitest.Of(New)

func TestMain(m *testing.M) { clitest.InUTC(m) }
