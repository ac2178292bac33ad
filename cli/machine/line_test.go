package machine

import (
	"testing"

	"github.com/bourse-dev/bourse/cli/clitest"
)

var line = clitest.Of(New, NewOrder, NewQuote, NewReservation, NewSpare, NewTask, NewVolume)

func TestMain(m *testing.M) { clitest.InUTC(m) }
