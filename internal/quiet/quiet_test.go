package quiet_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse/internal/quiet"
)

func TestLinesAreDueOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l quiet.Lines
		for range 3 {
			if !l.Due("a") || !l.Due("b") {
				t.Fatal("a line that was not logged for a minute is not due")
			}
			time.Sleep(quiet.Period - time.Nanosecond)
			if l.Due("a") || l.Due("b") {
				t.Fatal("a line is due twice within a minute")
			}
			time.Sleep(time.Nanosecond)
		}
		for i := range 1000 { // more keys than Lines stores
			if !l.Due(fmt.Sprint(i)) {
				t.Fatal("a new line is not due")
			}
		}
	})
}
