package order

import (
	"testing"

	"github.com/bourse-dev/bourse/cli/clitest"
)

var line = clitest.Of(New, NewQuote)

func TestMain(m *testing.M) { clitest.InUTC(m) }
