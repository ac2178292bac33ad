package store

import (
	"iter"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskRecord is what a worker knows of an order for work. While the task is in
// progress what it takes is part of the committed sums; once it has ended the
// result is kept for those who repeat the order.
type TaskRecord struct {
	App    bourse.AppName    `json:"app"`
	AppID  string            `json:"app_id,omitempty"` // see [bourse.App.Owns]
	Takes  bourse.Amounts    `json:"takes,omitempty"`  // beside what its machine takes; nothing once it has ended
	Result bourse.TaskResult `json:"result"`           // without an end while it is in progress
	Cold   *ColdTask         `json:"cold,omitempty"`   // of a machine of its own, until it has ended
}

// ColdTask is what a task's own machine needs, also from the next daemon.
type ColdTask struct {
	Payload []byte          `json:"payload,omitempty"`
	Until   time.Time       `json:"until"`             // its time is over then
	Timeout bourse.Duration `json:"timeout,omitempty"` // from its machine's start on; 0: Until says all
}

// Open reports whether the task is in progress.
func (r *TaskRecord) Open() bool { return r.Result.End == "" }

// TaskBytes bounds what is kept of ended tasks. Past it the oldest are
// forgotten, and a repetition of them would be a new order.
const TaskBytes = 128 << 20

const (
	// taskDrops bounds how many old tasks one new one displaces: a large answer
	// after many small ones is paid for by those that follow.
	taskDrops = 64
	// taskRoom is how much space is made at once, in bytes.
	taskRoom = TaskBytes / 64
	// taskOverhead is about what an ended task takes beside what its program and its
	// caller have said.
	taskOverhead = 512
)

const keyTaskBytes = "task_bytes"

// size is about what an ended task takes of the file.
func (r *TaskRecord) size() int64 {
	return int64(len(r.Result.Answer) + len(r.Result.Error) + len(r.Result.Type) + taskOverhead)
}

// TaskBegun inserts the record of a task that is in progress, and adds what it
// takes to the committed sums. CodeAlreadyExists: the order has a record.
func (t *Tx) TaskBegun(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	if o.Task == nil || !o.Task.Open() {
		return bourse.Errorf(bourse.CodeInternal, "order %s is for no task that begins", o.ID)
	}
	if err := o.Task.Takes.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "record of order %s: %w", o.ID, err)
	}
	if t.kv.Get(bucketOrders, k) != nil {
		return bourse.Errorf(bourse.CodeAlreadyExists, "order %s has a record", o.ID)
	}
	return orders.swap(t, k, nil, &o)
}

// TaskStarted records that a task's own machine has started: from then on its
// timeout counts. Of any other order there is nothing to record.
func (t *Tx) TaskStarted(id bourse.OrderID, at time.Time) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || o.Task.Cold == nil || o.Task.Cold.Timeout == 0 {
		return err
	}
	until := at.Add(time.Duration(o.Task.Cold.Timeout))
	if !until.Before(o.Task.Cold.Until) {
		return nil
	}
	o.Task.Cold.Until = until
	return orders.put(t, []byte(id), &o)
}

// TaskEnded records how a task has ended and takes what it took off the
// committed sums. It reports whether the task was in progress until now: the first
// end is the one that counts.
func (t *Tx) TaskEnded(id bourse.OrderID, result bourse.TaskResult, at time.Time) (bool, error) {
	if t.kv.Get(bucketTaskOpen, []byte(id)) == nil {
		return false, nil
	}
	old, ok, err := t.Order(id)
	if err != nil || !ok || old.Task == nil {
		return false, err
	}
	if result.End == "" {
		return false, bourse.Errorf(bourse.CodeInternal, "task %s has no end", id)
	}
	now, task := old, *old.Task
	task.Takes, task.Cold, task.Result = nil, nil, result
	now.At, now.Task = at, &task
	if err := orders.swap(t, []byte(id), &old, &now); err != nil {
		return false, err
	}
	return true, t.shedTasks()
}

// TaskUndone removes the record of a task of which nothing was begun: the
// order may be filled elsewhere, or here again.
func (t *Tx) TaskUndone(id bourse.OrderID) error {
	o, ok, err := t.Order(id)
	if err != nil || !ok || o.Task == nil || !o.Task.Open() {
		return err
	}
	return orders.swap(t, []byte(id), &o, nil)
}

// OpenTasks returns the orders of all tasks that are in progress.
func (t *Tx) OpenTasks() iter.Seq2[OrderRecord, error] {
	return func(yield func(OrderRecord, error) bool) {
		for k := range t.kv.Range(bucketTaskOpen, nil) {
			o, ok, err := t.Order(bourse.OrderID(k))
			if err == nil && (!ok || o.Task == nil) {
				err = bourse.Errorf(bourse.CodeInternal, "task %s is in progress without a record", k)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// WarmFor returns the living machines of an app that are configured for a task.
func (t *Tx) WarmFor(app bourse.App, task string) []bourse.MachineID {
	var out []bourse.MachineID
	for _, space := range spaces(&app) {
		for id := range t.under(bucketMachineTask, append(append(append([]byte(space), 0), task...), 0)) {
			if id := bourse.MachineID(id); space == app.ID || t.owned(id, &app) {
				out = append(out, id)
			}
		}
	}
	return out
}

// owned reports whether a machine whose record has no app's id is an app's.
func (t *Tx) owned(id bourse.MachineID, app *bourse.App) bool {
	m, err := t.Machine(id)
	return err == nil && m.OwnedBy(app)
}

// shedTasks makes space when ended tasks take too much: somewhat more than there
// has to be, since the way to the oldest leads over all that were dropped since
// the last checkpoint.
func (t *Tx) shedTasks() error {
	if t.taskBytes() <= TaskBytes {
		return nil
	}
	_, err := t.dropTasks(taskDrops, func(_ time.Time, kept int64) bool { return kept > TaskBytes-taskRoom })
	return err
}

// dropTasks forgets at most limit ended tasks, oldest first, as long as the next one
// is due: by when it ended, and by what it and all later ones take.
func (t *Tx) dropTasks(limit int, due func(ended time.Time, kept int64) bool) (int, error) {
	var old []string
	kept := t.taskBytes()
	for k, size := range t.kv.Range(bucketTaskTime, nil) {
		at, id := splitTimeKey(k)
		if len(old) == limit || !due(at, kept) {
			break
		}
		old = append(old, id)
		kept -= int64(uint64Of(size))
	}
	for _, id := range old {
		if err := orders.delete(t, []byte(id)); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

func (t *Tx) taskBytes() int64 { return int64(uint64Of(t.kv.Get(bucketMeta, []byte(keyTaskBytes)))) }
