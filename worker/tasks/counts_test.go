package tasks

import (
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// TestTally counts tasks from many goroutines, and checks that the last error is
// shortened and valid UTF-8.
func TestTally(t *testing.T) {
	t.Parallel()
	var y Tasks
	if y.Counts("m1") != nil {
		t.Error("a machine without tasks has counts")
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			r := bourse.TaskResult{Machine: "m1", End: bourse.TaskAnswered, StartedAt: at}
			if i%10 == 0 {
				r.End, r.Error, r.Took = bourse.TaskFailed, strings.Repeat("é", 1000), time.Second
			}
			y.counts.add(&r)
		})
	}
	wg.Wait()
	got := y.Counts("m1")
	if got == nil || got.Total != 100 || got.Failed != 10 || !got.FailedAt.Equal(at.Add(time.Second)) || len(got.Error) > maxCountsError || !utf8.ValidString(got.Error) {
		t.Errorf("got %+v", got)
	}
	y.counts.add(&bourse.TaskResult{Machine: "m1", End: bourse.TaskLost, StartedAt: at})
	if got := y.Counts("m1"); got.Error != "lost" {
		t.Errorf("an empty error was stored as %q", got.Error)
	}
	y.counts.forget("m1")
	if y.Counts("m1") != nil {
		t.Error("a removed machine still has counts")
	}
}
