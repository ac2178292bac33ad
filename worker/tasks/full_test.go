package tasks

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/tasks/taskstest"
)

// If the disk is full when a task ends, the caller still gets the answer, and the
// task's slots become free once the disk has room again.
func TestAnEndThatCannotBeRecordedYet(t *testing.T) {
	p := taskstest.NewProgram(t, nil)
	h := newHost(t)
	h.place(p.Warmed("echo", 1))
	order := taskstest.Call(t, "echo", 4)
	h.slots()
	refusing := errors.New("no room")
	full := make(chan struct{})
	call, _ := h.calls.enter(t.Context(), order.ID)
	result := bourse.TaskResult{Order: order.ID, Worker: "w1", Region: "gru", End: bourse.TaskAnswered, Answer: []byte("kept")}
	if err := h.store.Update(t.Context(), func(tx *store.Tx) error {
		return h.recordBegin(tx, order, recordOf(order, bourse.TaskResult{Order: order.ID}))
	}); err != nil {
		t.Fatal(err)
	}
	h.save(call, func(tx *store.Tx) error {
		select {
		case <-full:
			_, err := tx.RecordTaskEnd(order.ID, result, time.Now())
			return err
		default:
			return refusing
		}
	})
	call.fill = &bourse.Fill{Task: &result}
	h.calls.settle(call)
	close(call.done)
	if got := h.result(t.Context(), order); string(got.Answer) != "kept" { // while the disk is full, the answer comes from memory
		t.Errorf("again: %+v", got)
	}
	if n := h.slots(); n != 4 {
		t.Errorf("%d slots are taken, want 4 until their release is recorded", n)
	}
	close(full)
	deadline := time.Now().Add(10 * time.Second)
	for h.slots() != 0 && time.Now().Before(deadline) { // real time, because the retries are delayed
		time.Sleep(10 * time.Millisecond)
	}
	if n := h.slots(); n != 0 {
		t.Errorf("%d slots were not released", n)
	}
	if got := h.result(t.Context(), order); string(got.Answer) != "kept" || p.Calls.Load() != 0 {
		t.Errorf("again: %+v", got)
	}
	h.verify()
}

// The record of a task whose program does not listen must be removed. Until the disk accepts the removal, the order is
// not refused, because after a crash, the task would be recorded as lost on this worker.
func TestATaskThatCannotBeUndoneYet(t *testing.T) {
	h := newHost(t)
	h.place(func(o *bourse.Order) { o.Config.Task = &bourse.TaskConfig{Name: "never", Port: 1} })
	h.warm.timeout = 0
	var commits atomic.Int64
	h.fault.Store(new(func() error {
		if commits.Add(1) == 2 { // the first commit records the task
			return syscall.ENOSPC
		}
		return nil
	}))
	order := taskstest.Call(t, "never", 4)
	if _, refusal, err := h.Claim(t.Context(), &bourse.Claim{Order: *order}); refusal != nil || bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("refusal %+v, error %v; want %s", refusal, err, bourse.CodeUnavailable)
	}
}
