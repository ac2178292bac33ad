package tasks

import (
	"bytes"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/tasks/taskstest"
)

// A repeated order gets its answer even if other orders have taken all places. If it
// were refused, it would be filled on another worker and run twice.
func TestARepetitionNeedsNoFreePlace(t *testing.T) {
	p := taskstest.NewProgramOf(t, bourse.TaskFrames, nil)
	h := newHost(t)
	h.place(p.Warmed("echo", 1))
	done := taskstest.Call(t, "echo", 1)
	done.HasChosenID = true
	if got := h.result(t.Context(), done); ended(got) != "answered 0 answer" {
		t.Fatalf("got %s: %s", ended(got), got.Error)
	}
	if err := h.store.Sync(t.Context()); err != nil { // until this, the first call is still in progress
		t.Fatal(err)
	}
	again := func(how string, result *bourse.TaskResult, refusal *bourse.Refusal, err error) {
		t.Helper()
		if err != nil || refusal != nil || result == nil || string(result.Answer) != "answer" {
			t.Errorf("%s: %+v, refusal %+v, %v", how, result, refusal, err)
		}
	}
	seen, err := h.newAnswer(done)
	if err != nil || seen.refusal != nil {
		t.Fatalf("%+v, %v", seen.refusal, err)
	}
	m, _ := h.warm.take(seen.warm) // another order takes the only place
	v, err := h.answerFull(done, seen)
	again("a place that was taken in the meantime", v.result, v.refusal, err)
	if v, err := h.answerFull(taskstest.Call(t, "echo", 1), seen); err != nil || v.refusal == nil || v.refusal.Reason != bourse.RefusedResource {
		t.Errorf("a new order: %+v, %v", v.refusal, err)
	}
	for _, how := range []string{"no place", "a place"} {
		fill, refusal, err := h.Claim(t.Context(), &bourse.Claim{Order: *done})
		if fill == nil {
			fill = &bourse.Fill{}
		}
		again(how, fill.Task, refusal, err)
		if how == "no place" {
			h.warm.release(m)
		}
	}
	if got := v.result; !bytes.Equal(got.Sum, done.TaskSum()) || done.HasChosenID != (got.Sum != nil) {
		t.Errorf("the hash of the work is %x in the record and %x for the order", got.Sum, done.TaskSum())
	}
	if p.Times(done.ID) != 1 {
		t.Errorf("the task ran %d times", p.Times(done.ID))
	}
	h.verify()
}
