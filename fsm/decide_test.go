package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestDecide(t *testing.T) {
	now := time.Unix(1000, 0)
	act := func(context.Context, *Run[int, int]) Outcome { return Done() }
	plain := Define[int, int]("d").Step("a", act).Step("b", act, StepOptions{Attempts: 2}).d
	undoes := Define[int, int]("d").Step("a", act).OnCancel(act).d
	at := func(name string) Record { return Record{Step: name, Status: Queued, Result: json.RawMessage(`1`)} }
	canceled := func(name string) Record { r := at(name); r.Cancel = "why"; return r }
	bad := bourse.Errorf(bourse.CodeConflict, "bad")

	for _, x := range []struct {
		name string
		d    *definition
		rec  Record
		s    *step
		o    Outcome
		want Record
	}{
		{"done continues with the next step", plain, at("a"), plain.steps[0], Done(), Record{Status: Running, Step: "b", Result: json.RawMessage(`2`)}},
		{"done ends the run after the last step", plain, at("b"), plain.steps[1], Done(), Record{Status: Succeeded, Result: json.RawMessage(`2`)}},
		{"finish ends the run at any step", plain, at("a"), plain.steps[0], Finish(), Record{Status: Succeeded, Result: json.RawMessage(`2`)}},
		{"abort fails", plain, at("a"), plain.steps[0], Abort(bad), Record{Status: Failed, Code: "conflict", Error: "bad", Result: json.RawMessage(`1`)}},
		{
			"retry backs off", plain, at("b"), plain.steps[1], Retry(bad),
			Record{Status: Running, Step: "b", Attempt: 1, NotBefore: now.Add(75 * time.Millisecond), Code: "conflict", Error: "bad", Result: json.RawMessage(`1`)},
		},
		{
			"retry after is exact", plain, at("b"), plain.steps[1], RetryAfter(time.Minute, bad),
			Record{Status: Running, Step: "b", Attempt: 1, NotBefore: now.Add(time.Minute), Code: "conflict", Error: "bad", Result: json.RawMessage(`1`)},
		},
		{
			"the last attempt is stuck", plain,
			Record{Step: "b", Attempt: 1},
			plain.steps[1], Retry(errors.New("x")),
			Record{Status: Stuck, Step: "b", Attempt: 2, Code: "internal", Error: "x"},
		},
		{
			"canceled: done in the middle", plain, canceled("a"), plain.steps[0], Done(),
			Record{Status: Canceled, Cancel: "why", Code: "canceled", Error: "why", Result: json.RawMessage(`2`)},
		},
		{
			"canceled: abort", plain, canceled("a"), plain.steps[0], Abort(bad),
			Record{Status: Canceled, Cancel: "why", Code: "canceled", Error: "why", Result: json.RawMessage(`1`)},
		},
		{
			"canceled: done of the last step is compensated", undoes, canceled("a"), undoes.steps[0], Done(),
			Record{Status: Running, Cancel: "why", Result: json.RawMessage(`2`)},
		},
		{
			"canceled: retry becomes compensation", undoes, canceled("a"), undoes.steps[0], Retry(bad),
			Record{Status: Running, Step: "a", Cancel: "why", Result: json.RawMessage(`1`)},
		},
		{
			"canceled: compensated", undoes, canceled("a"), undoes.onCancel, Done(),
			Record{Status: Canceled, Cancel: "why", Code: "canceled", Error: "why", Result: json.RawMessage(`2`)},
		},
		{
			"canceled: compensation failed", undoes, canceled("a"), undoes.onCancel, Abort(bad),
			Record{Status: Canceled, Cancel: "why", Code: "canceled", Error: "why", Result: json.RawMessage(`1`)},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.want.UpdatedAt = now
			got := decide(x.d, x.rec, x.s, x.o, json.RawMessage(`2`), now, 0.5)
			if diff := cmp.Diff(x.want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackoffDoublesWithinItsLimits(t *testing.T) {
	s := &step{StepOptions: StepOptions{Backoff: time.Second, MaxBackoff: 10 * time.Second}}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1 << 40: 10 * time.Second} {
		if low, high := backoff(s, n, 0), backoff(s, n, 1); low != want/2 || high != want {
			t.Errorf("attempt %d: %s to %s, want %s to %s", n, low, high, want/2, want)
		}
	}
}

func TestQueueOrderDoesNotDependOnLoading(t *testing.T) {
	var ids idSource
	now := time.Unix(1000, 0)
	rec := func(status Status, after time.Duration) Record {
		r := Record{ID: ids.next(now), Status: status, Resource: "x"}
		if after > 0 {
			r.NotBefore = now.Add(after)
		}
		now = now.Add(time.Second)
		return r
	}
	records := []Record{
		rec(Queued, 0), rec(Delayed, 1500*time.Millisecond), rec(Queued, 0), rec(Delayed, time.Hour), rec(Running, time.Minute), rec(Queued, 0),
	}
	want := []int{4, 0, 2, 1, 5, 3} // the run that has begun, then the others by their due times
	for range 20 {                  // the order of loading does not matter
		q := &queue{}
		for _, i := range []int{3, 1, 5, 0, 4, 2} {
			q.load(newEntry(records[i]))
		}
		got := []string{q.current.id}
		for _, ent := range q.waiting {
			got = append(got, ent.id)
		}
		for i, w := range want {
			if got[i] != records[w].ID {
				t.Fatalf("position %d has %s, want record %d", i, got[i], w)
			}
		}
	}
}

func TestIDsOnlyGrow(t *testing.T) {
	var s idSource
	now := time.Unix(1000, 0)
	var made []string
	for i := range 1000 {
		if i == 500 {
			now = now.Add(-time.Hour) // the clock is set back
		}
		made = append(made, s.next(now))
	}
	after := idSource{}
	after.advancePast(made[len(made)-1])
	made = append(made, after.next(now.Add(-time.Hour)))
	if !slices.IsSorted(made) || len(slices.Compact(made)) != 1001 {
		t.Error("IDs repeat or decrease")
	}
}
