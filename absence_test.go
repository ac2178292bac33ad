package bourse_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// An absent worker may have filled every order but those that were made after
// it went; an id that is not of its time says nothing.
func TestMayHaveFilled(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	lost := bourse.Absence{Since: now.Add(-time.Minute)}
	for name, c := range map[string]struct {
		born time.Time
		want bool
	}{
		"before":            {now.Add(-time.Hour), true},
		"the same moment":   {lost.Since, true},
		"a little later":    {lost.Since.Add(bourse.MaxSkew), true}, // clocks differ
		"later":             {lost.Since.Add(bourse.MaxSkew + time.Millisecond), false},
		"just now":          {now, false},
		"a little ahead":    {now.Add(bourse.MaxSkew), false},
		"in the far future": {now.Add(bourse.MaxSkew + time.Millisecond), true},
	} {
		id := bourse.OrderID(ulid.MustNew(ulid.Timestamp(c.born), ulid.DefaultEntropy()).String())
		if got := lost.MayHaveFilled(id, now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	if !lost.MayHaveFilled("no id", now) {
		t.Error("an id without a time: the worker cannot have filled it, want that it may have")
	}
	if lost.Lost(now) || !lost.Lost(lost.Since.Add(bourse.LostAfter+1)) {
		t.Error("a worker is lost for good after LostAfter, not before")
	}
}
