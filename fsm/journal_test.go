package fsm_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse/fsm/fsmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryJournal(t *testing.T) {
	fsmtest.Run(t, func(testing.TB) fsmtest.Disk { return &fsmtest.Memory{Latency: time.Millisecond} })
}
