package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func taskOrder(n int, slots int64) OrderRecord {
	o := OrderRecord{
		ID: bourse.OrderID(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ%07d", n)), At: time.Unix(int64(n), 0).UTC(),
		Task: &TaskRecord{App: "web", Result: bourse.TaskResult{Machine: machineID(0), StartedAt: time.Unix(int64(n), 0).UTC()}},
	}
	if slots > 0 {
		o.Task.Takes = bourse.Amounts{{Resource: "slots", Amount: slots}}
	}
	o.Task.Result.Order = o.ID
	return o
}

func taskEnd(o *OrderRecord, answer []byte) bourse.TaskResult {
	r := o.Task.Result
	r.End, r.Answer = bourse.TaskAnswered, answer
	return r
}

// TestTaskModel begins, ends, undoes and prunes tasks in random order. It checks that the committed sums always match
// the tasks in progress, and that all indexes are correct.
func TestTaskModel(t *testing.T) {
	t.Parallel()
	s := open(t)
	rapid.Check(t, func(t *rapid.T) {
		empty(t, s, bucketOrders, bucketOrderTime, bucketTaskOpen, bucketTaskTime, bucketCommitted, bucketMeta)
		begun, over := map[int]int64{}, map[int]bool{}
		at := time.Unix(1000, 0)
		one := func(fn func(*Tx) error) error { return s.Update(t.Context(), fn) }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				n, slots := rapid.IntRange(0, 20).Draw(t, "n"), rapid.Int64Range(0, 5).Draw(t, "slots")
				err := one(func(tx *Tx) error { return tx.RecordTask(taskOrder(n, slots)) })
				if _, known := begun[n]; known || over[n] {
					if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
						t.Fatalf("begin the same task again: got %v, want already_exists", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				begun[n] = slots
			},
			"end": func(t *rapid.T) {
				n := rapid.IntRange(0, 20).Draw(t, "n")
				o := taskOrder(n, 0)
				at = at.Add(time.Second)
				var ended bool
				if err := one(func(tx *Tx) (err error) {
					ended, err = tx.RecordTaskEnd(o.ID, taskEnd(&o, bytes.Repeat([]byte("x"), n)), at)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if _, open := begun[n]; open != ended {
					t.Fatalf("order %d ended: %t, want %t", n, ended, open)
				}
				if ended {
					delete(begun, n)
					over[n] = true
				}
			},
			"undo": func(t *rapid.T) {
				n := rapid.IntRange(0, 20).Draw(t, "n")
				if err := one(func(tx *Tx) error { return tx.DeleteTask(taskOrder(n, 0).ID) }); err != nil {
					t.Fatal(err)
				}
				delete(begun, n)
			},
			"prune": func(t *rapid.T) {
				if err := one(func(tx *Tx) error {
					_, err := tx.deleteTasks(1000, func(ended time.Time, _ int64) bool { return ended.Before(at.Add(time.Hour)) })
					return err
				}); err != nil {
					t.Fatal(err)
				}
				clear(over)
			},
			"": func(t *rapid.T) {
				var slots int64
				for _, n := range begun {
					slots += n
				}
				if err := s.View(func(tx *Tx) error {
					committed, err := tx.Committed()
					open := 0
					for _, err := range tx.OpenTasks() {
						if err != nil {
							return err
						}
						open++
					}
					if committed.Of("slots") != slots || open != len(begun) {
						t.Fatalf("%d slots of %d tasks, want %d of %d", committed.Of("slots"), open, slots, len(begun))
					}
					for n := range over {
						if o, ok, err := tx.Order(taskOrder(n, 0).ID); err != nil || !ok || len(o.Task.Result.Answer) != n || len(o.Task.Takes) != 0 {
							t.Fatalf("order %d: %+v %t %v", n, o.Task, ok, err)
						}
					}
					if err != nil {
						return err
					}
					return tx.Verify()
				}); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// TestAnswersAreLimitedInBytes checks that the size of ended tasks is limited, and that the oldest answers are deleted
// first.
func TestAnswersAreLimitedInBytes(t *testing.T) {
	t.Parallel()
	s := open(t)
	answer := bytes.Repeat([]byte("a"), 1<<20)
	const each = 1 << 20 // size of a record
	n := MaxTaskBytes/each + 20
	for i := range n {
		o := taskOrder(i, 1)
		update(t, s, func(tx *Tx) error {
			if err := tx.RecordTask(o); err != nil {
				return err
			}
			_, err := tx.RecordTaskEnd(o.ID, taskEnd(&o, answer), o.At)
			return err
		})
	}
	view(t, s, func(tx *Tx) error {
		_, first, err := tx.Order(taskOrder(0, 0).ID)
		last, ok, err2 := tx.Order(taskOrder(n-1, 0).ID)
		if first || err != nil || err2 != nil || !ok || len(last.Task.Result.Answer) != len(answer) {
			t.Errorf("first task found: %t, last task found: %t; %v, %v", first, ok, err, err2)
		}
		if have := tx.taskBytes(); have > MaxTaskBytes || have < MaxTaskBytes-taskEvictBytes-2*each {
			t.Errorf("%d bytes are retained, want at most %d", have, MaxTaskBytes)
		}
		return tx.Verify()
	})
}

// TestPruneTasks checks that a task is pruned some time after its end, and never while it is in
// progress.
func TestPruneTasks(t *testing.T) {
	s := open(t)
	now := time.Now()
	for i := range 3 {
		o := taskOrder(i, 1)
		update(t, s, func(tx *Tx) error { return tx.RecordTask(o) })
		if i > 0 {
			update(t, s, func(tx *Tx) error {
				_, err := tx.RecordTaskEnd(o.ID, taskEnd(&o, nil), now.Add(time.Duration(i-2)*2*time.Hour))
				return err
			})
		}
	}
	pruned, err := s.Prune(t.Context(), now)
	if err != nil || pruned != (Pruned{Tasks: 1}) {
		t.Errorf("pruned %+v, %v, want only the task that ended long ago", pruned, err)
	}
	view(t, s, func(tx *Tx) error {
		for i, want := range []bool{true, false, true} {
			if _, ok, err := tx.Order(taskOrder(i, 0).ID); ok != want || err != nil {
				t.Errorf("order %d found: %t, %v; want %t", i, ok, err, want)
			}
		}
		return tx.Verify()
	})
}

// TestWarmFor checks that WarmFor returns the live machines that are configured for a task.
func TestWarmFor(t *testing.T) {
	s := open(t)
	for i, name := range []string{"inc", "inc", "inc-2", ""} {
		m := machine(i, bourse.StateStarting)
		if name != "" {
			m.Config.Task = &bourse.TaskConfig{Name: name}
		}
		update(t, s, func(tx *Tx) error { return tx.PutMachine(m) })
	}
	view(t, s, func(tx *Tx) error {
		app := bourse.App{Name: machine(0, "").App}
		if got := tx.WarmFor(app, "inc"); len(got) != 2 || got[0] != machineID(0) || got[1] != machineID(1) {
			t.Errorf("warm for inc: %v", got)
		}
		if got := append(tx.WarmFor(app, "in"), tx.WarmFor(bourse.App{Name: "other"}, "inc")...); len(got) != 0 {
			t.Errorf("warm for others: %v", got)
		}
		return tx.Verify()
	})
}

// TestTaskStarted checks that a task's timeout counts from the first start of its machine, and
// never extends the task's deadline.
func TestTaskStarted(t *testing.T) {
	s := open(t)
	at := time.Unix(1000, 0).UTC()
	n := 0
	for name, c := range map[string]struct {
		cold   *ColdTask
		starts []time.Duration // times after at
		want   time.Duration
	}{
		"no separate machine": {nil, []time.Duration{0}, 0},
		"without a timeout":   {&ColdTask{Until: at.Add(time.Minute)}, []time.Duration{0}, time.Minute},
		"soon":                {&ColdTask{Until: at.Add(time.Minute), Timeout: bourse.Duration(5 * time.Second)}, []time.Duration{time.Second}, 6 * time.Second},
		"started again":       {&ColdTask{Until: at.Add(time.Minute), Timeout: bourse.Duration(5 * time.Second)}, []time.Duration{1, 1}, 5*time.Second + 1},
		"late":                {&ColdTask{Until: at.Add(time.Minute), Timeout: bourse.Duration(5 * time.Second)}, []time.Duration{58 * time.Second}, time.Minute},
	} {
		n++
		o := taskOrder(n, 1)
		o.Task.Cold = c.cold
		err := s.Update(t.Context(), func(tx *Tx) error {
			err := tx.RecordTask(o)
			for _, after := range c.starts {
				err = errors.Join(err, tx.RecordTaskStart(o.ID, at.Add(after)))
			}
			got, _, getErr := tx.Order(o.ID)
			if c.cold != nil && !got.Task.Cold.Until.Equal(at.Add(c.want)) {
				t.Errorf("%s: the task times out at %s, want %s after %s", name, got.Task.Cold.Until, c.want, at)
			}
			return errors.Join(err, getErr, tx.Verify())
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended := taskOrder(99, 0)
	result := taskEnd(&ended, []byte("answer"))
	if err := s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.RecordTaskEnd(ended.ID, result, at)
		return errors.Join(err, tx.RecordTaskStart(ended.ID, at), tx.RecordTaskStart(taskOrder(98, 0).ID, at))
	}); err != nil {
		t.Errorf("start of a task that is not in progress: %v", err)
	}
}
