package machines

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/worker/state"
)

// lame is a driver whose Wait always fails.
type lame struct{ driver.Driver }

func (lame) Wait(context.Context, driver.TaskID) (bourse.Exit, error) {
	return bourse.Exit{}, bourse.Errorf(bourse.CodeUnavailable, "not now")
}

// Ten goroutines watch machines while the disk is full. Together, they log one line a minute, with the number of
// suppressed lines.
func TestWatchesLogOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		ms := &Machines{state: &state.State{Log: slog.New(slog.NewTextHandler(&out, nil))}}
		ms.state.SetContext(ctx)
		for n := range 10 {
			ms.watch(lame{}, driver.TaskID{Machine: bourse.MachineID(fmt.Sprint("m", n))}, errTextNotStarted)
		}
		time.Sleep(quiet.Period + quiet.Period/2)
		cancel()
		ms.state.Wait()
		if got := strings.Count(out.String(), "watch machine failed"); got != 2 || !strings.Contains(out.String(), "not_logged=599") {
			t.Errorf("%d lines, want 2, one of which reports 599 suppressed lines:\n%s", got, &out)
		}
	})
}
